//! Options with their defaults beside them, as in the signature of a Python function.

/// Declares a struct of options, each with its default, which its documentation then names:
///
/// ```
/// tch_parallel_base::options! {
///     /// Keyword arguments of a layer.
///     #[derive(Debug)]
///     pub struct LayerOptions {
///         /// Whether to add a bias.
///         pub bias: bool = true,
///     }
/// }
/// assert!(LayerOptions::default().bias);
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $Options:ident {
            $($(#[$about:meta])* pub $option:ident: $Type:ty = $default:expr,)+
        }
    ) => {
        $(#[$attribute])*
        pub struct $Options {
            $(
                $(#[$about])*
                #[doc = concat!("\n\nDefault: `", stringify!($default), "`.")]
                pub $option: $Type,
            )+
        }

        impl Default for $Options {
            fn default() -> Self {
                $Options { $($option: $default,)+ }
            }
        }
    };
}
