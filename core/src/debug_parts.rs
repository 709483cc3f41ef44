//! `Debug` for types that hold more than can be shown.

/// Implements `Debug` for a type with these parts alone, each given as a name and a value.
macro_rules! debug_parts {
    ($Type:ident $(<$($Any:ident),+>)?, $self:ident $(, $part:ident: $value:expr)*) => {
        impl $(<$($Any),+>)? std::fmt::Debug for $Type $(<$($Any),+>)? {
            fn fmt(&$self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($Type))
                    $(.field(stringify!($part), &$value))*
                    .finish_non_exhaustive()
            }
        }
    };
}
