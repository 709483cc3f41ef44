//! An attribute for tests that several processes or threads run together.

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// Makes a test of a function: with `#[run_by(on_ranks(2))]`, the test calls `on_ranks` with 2 and with a closure that
/// has the function's parameters and body. The test is also registered by name, so that `tests::fork_server` can run it
/// in another process. The crate must therefore depend on `tests`.
#[proc_macro_attribute]
pub fn run_by(call: TokenStream, function: TokenStream) -> TokenStream {
    let [mut call, mut function] = [call, function].map(|it| it.into_iter().collect::<Vec<_>>());
    let (Some(TokenTree::Group(arguments)), Some(body), Some(TokenTree::Group(parameters))) =
        (call.pop(), function.pop(), function.pop())
    else {
        panic!("run_by has a call, and stands before a function");
    };
    let name = function.last().map(ToString::to_string).unwrap_or_default();
    let registered = format!(
        "::tests::inventory::submit! {{ ::tests::fork_server::Test {{ \
            name: concat!(module_path!(), \"::{name}\"), run: {name} }} }}"
    );
    let sign = |sign| TokenTree::from(Punct::new(sign, Spacing::Alone));
    let group = |delimiter, content| TokenTree::from(Group::new(delimiter, content));
    let arguments = arguments.stream().into_iter().chain([sign(','), sign('|')]);
    let arguments = arguments.chain(parameters.stream()).chain([sign('|'), body]).collect();
    call.extend([group(Delimiter::Parenthesis, arguments), sign(';')]);
    function.push(group(Delimiter::Parenthesis, TokenStream::new()));
    function.push(group(Delimiter::Brace, call.into_iter().collect()));
    let test =
        group(Delimiter::Bracket, TokenTree::from(Ident::new("test", Span::call_site())).into());
    let registered = registered.parse::<TokenStream>().into_iter().flatten();
    [sign('#'), test].into_iter().chain(function).chain(registered).collect()
}
