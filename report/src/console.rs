//! The program's own stdout and stderr, which may lead nowhere.
//!
//! A training must not end because nobody reads what it prints: after `| head -1`, when the terminal has been closed,
//! or when the disk is full. The standard library's macros panic then; these go on, and so the model is saved.

use std::{fmt::Arguments, io::Write};

/// [`std::print!`] that goes on when nobody reads the output.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => {
        $crate::console::write(std::io::stdout(), std::format_args!($($text)*))
    };
}

/// [`std::println!`] that goes on when nobody reads the output.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => {
        $crate::print!("{}\n", std::format_args!($($text)*))
    };
}

/// [`std::eprintln!`] that goes on when nobody reads the output.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::console::write(std::io::stderr(), std::format_args!("{}\n", std::format_args!($($text)*)))
    };
}

/// Writes a text to stdout or stderr. Errors are ignored: there is nobody to tell.
#[doc(hidden)]
pub fn write(mut stream: impl Write, text: Arguments<'_>) {
    let _ = stream.write_fmt(text);
}
