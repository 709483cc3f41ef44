//! What a module that is trained in parallel may return.

use tch::Tensor;

/// One tensor or several: whoever prepares a backward pass has to find every one of them.
pub trait Outputs {
    /// Calls `f` on each tensor, always in the same order.
    fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor));
}

impl Outputs for Tensor {
    fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
        f(self);
    }
}

impl<O: Outputs> Outputs for Vec<O> {
    fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
        self.iter_mut().for_each(|output| output.visit(f));
    }
}

impl<O: Outputs> Outputs for Option<O> {
    fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
        self.iter_mut().for_each(|output| output.visit(f));
    }
}

impl<A: Outputs, B: Outputs> Outputs for (A, B) {
    fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
        self.0.visit(f);
        self.1.visit(f);
    }
}

impl<A: Outputs, B: Outputs, C: Outputs> Outputs for (A, B, C) {
    fn visit(&mut self, f: &mut dyn FnMut(&mut Tensor)) {
        self.0.visit(f);
        self.1.visit(f);
        self.2.visit(f);
    }
}
