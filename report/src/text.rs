//! Texts with holes for numbers, as minijinja templates.

use crate::{size, thousands};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, UndefinedBehavior};

/// Fills in the holes of a text. It knows the filters `thousands` and [`size`]; an unknown name is an
/// error, and a line that holds only a tag prints nothing.
///
/// ```
/// use minijinja::context;
/// use report::text_environment;
///
/// let text = "{{ images|thousands }} images take {{ bytes|size }}.";
/// let filled = text_environment()?.render_str(text, context! { images => 4096, bytes => 3 << 20 })?;
/// assert_eq!(filled, "4,096 images take 3.00 MiB.");
/// # Ok::<(), minijinja::Error>(())
/// ```
///
/// # Errors
/// None with this syntax of tags, which minijinja checks here.
pub fn text_environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_filter("thousands", thousands);
    environment.add_filter("size", size);
    Ok(environment)
}
