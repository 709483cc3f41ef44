//! Options with their defaults beside them, as in the signature of a Python function.

/// Declares a struct of options, whose documentation names each default. A constructor takes those without one:
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
///
/// tch_parallel_base::options! {
///     /// Multiplies the learning rate.
///     #[derive(Debug)]
///     pub struct StepLr {
///         /// After this many epochs.
///         pub step_size: u64,
///         /// By this.
///         pub gamma: f64 = 0.1,
///     }
///     /// With PyTorch's default `gamma`.
///     pub fn new(step_size: u64);
/// }
/// assert_eq!(StepLr::new(30).gamma, 0.1);
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $Options:ident $(<$lifetime:lifetime>)? {
            $($(#[$about:meta])* pub $option:ident: $Type:ty $(= $default:expr)?,)+
        }
        $($(#[$how:meta])* pub fn new($($given:ident: $Given:ty),+);)?
    ) => {
        $(#[$attribute])*
        pub struct $Options $(<$lifetime>)? {
            $(
                $(#[$about])*
                $(#[doc = concat!("\n\nDefault: `", stringify!($default), "`.")])?
                pub $option: $Type,
            )+
        }

        $crate::options! {
            @$Options $(<$lifetime>)? { $($($option: $default,)?)+ }
            $($(#[$how])* ($($given: $Given),+))?
        }
    };
    (@$Options:ident $(<$lifetime:lifetime>)? { $($option:ident: $default:expr,)+ }) => {
        impl $(<$lifetime>)? Default for $Options $(<$lifetime>)? {
            fn default() -> Self {
                $Options { $($option: $default,)+ }
            }
        }
    };
    (
        @$Options:ident { $($option:ident: $default:expr,)+ }
        $(#[$how:meta])* ($($given:ident: $Given:ty),+)
    ) => {
        impl $Options {
            $(#[$how])*
            pub fn new($($given: $Given),+) -> Self {
                $Options { $($given: $given.into(),)+ $($option: $default,)+ }
            }
        }
    };
}
