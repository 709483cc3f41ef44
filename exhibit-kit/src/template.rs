//! Text files with placeholders for functions and numbers: minijinja's templates.
//!
//! A program that explains numbers keeps the explanation in a text file, where it can be read and
//! edited as text. A table is written as in Markdown, and is printed with its columns aligned:
//!
//! ```
//! use minijinja::context;
//! use exhibit_kit::template;
//!
//! let text = "\
//! {% filter table %}
//! step | bytes
//! ---- | ----:
//! {% for step, bytes in steps %}
//! {{ step }} | {{ bytes|thousands }}
//! {% endfor %}
//! {% endfilter %}
//! ";
//! let steps = vec![("gather", 8), ("loss", 1024)];
//! let steps = minijinja::value::Serde(steps);
//! let filled = template::environment()?.render_str(text, context! { steps })?;
//! assert_eq!(filled, "step    bytes\ngather      8\nloss    1,024\n");
//! # Ok::<(), minijinja::Error>(())
//! ```

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use report::{aligned, size, thousands};
use std::io::stdout;
use textwrap::fill;

/// The width of a paragraph, in characters.
const WIDTH: usize = 100;

/// An environment for such texts: a misspelt name is an error, and a line that contains only a tag
/// prints nothing. Besides minijinja's own filters it has `table`, `thousands`, [`size`],
/// `decimals(n)`, and `milliseconds`, which shows seconds to the microsecond.
pub fn environment() -> Result<Environment<'static>, Error> {
    let mut text = Environment::new();
    text.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(true)
        .build()?;
    text.set_syntax(syntax);
    text.add_filter("table", markdown_table);
    text.add_filter("thousands", thousands);
    text.add_filter("size", size);
    text.add_filter("decimals", |number: f64, digits: usize| format!("{number:.digits$}"));
    text.add_filter("milliseconds", |seconds: f64| format!("{:.3}", seconds * 1e3));
    Ok(text)
}

/// Prints a text with its placeholders filled, each line as soon as it is known. Fails with a function of the text.
pub fn print(env: &Environment<'_>, text: &str, holes: impl Into<Value>) -> Result<(), Error> {
    match env.template_from_str(text)?.render_captured_to(holes, stdout()) {
        // Nobody reads the output, and the program goes on.
        Err(error) if error.kind() == ErrorKind::WriteFailure => Ok(()),
        printed => printed.map(drop),
    }
}

/// Converts the result of a function that a text calls. A failure keeps its message.
pub fn found(result: anyhow::Result<impl Into<Value>>) -> Result<Value, Error> {
    let failed = |error| Error::new(ErrorKind::InvalidOperation, format!("{error:#}"));
    result.map(Into::into).map_err(failed)
}

/// Wraps each paragraph of the text to lines of up to 100 characters. An empty line ends a paragraph.
///
/// ```
/// assert_eq!(exhibit_kit::template::paragraphs("one\ntwo\n\nthree"), "one two\n\nthree\n");
/// ```
pub fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    let wrapped = paragraphs.map(|paragraph| fill(&paragraph.replace('\n', " "), WIDTH) + "\n");
    wrapped.collect::<Vec<_>>().join("\n")
}

/// Aligns the columns of a table in Markdown, to the side of each colon in its second line, such as `--- | ---:`.
fn markdown_table(text: &str) -> Result<String, Error> {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    let mut lines: Vec<Vec<String>> = text.lines().map(cells).collect();
    if lines.len() < 2 {
        return Err(Error::new(ErrorKind::InvalidOperation, "a table needs two lines or more"));
    }
    let flush_right: Vec<_> = lines.remove(1).iter().map(|side| side.ends_with(':')).collect();
    Ok(aligned(&flush_right, &lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_a_row_lacks_stay_empty_and_those_beyond_the_last_side_are_not_shown() {
        let table = "name | n | note | by\n--- | ---: | ---\ncpu:10 | 7 | µs | me\nx | 12345\n";
        let shown = "name        n  note\ncpu:10      7  µs\nx       12345\n";
        assert_eq!(markdown_table(table).unwrap(), shown);
    }

    #[test]
    fn a_misspelt_name_a_table_without_sides_and_a_failed_function_are_errors() {
        let mut text = environment().unwrap();
        text.add_function("fails", || found(Err::<i64, _>(anyhow::anyhow!("no ranks"))));
        for wrong in ["{{ rank }}", "{% filter table %}a | b{% endfilter %}"] {
            text.render_str(wrong, ()).unwrap_err();
        }
        let error = text.render_str("{{ fails() }}", ()).unwrap_err();
        assert!(error.to_string().contains("no ranks"), "{error}");
    }

    #[test]
    fn numbers_are_rounded() {
        let text = "{{ 2|decimals(1) }} {{ 0.126|decimals(2) }} {{ 0.0123456|milliseconds }}\n";
        let filled = environment().unwrap().render_str(text, ());
        assert_eq!(filled.unwrap(), "2.0 0.13 12.346\n");
    }
}
