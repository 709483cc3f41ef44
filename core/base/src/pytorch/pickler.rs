//! Writes the pickle that `torch.save` writes for an `OrderedDict` of tensors and texts.

use super::op;

pub(super) struct Pickler(Vec<u8>);

impl Pickler {
    pub(super) fn new() -> Self {
        let mut pickler = Pickler(vec![op::PROTO, op::PROTOCOL]);
        pickler.ordered_dict();
        pickler.0.push(op::MARK);
        pickler
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.extend([op::SETITEMS, op::STOP]);
        self.0
    }

    /// An entry whose value is the text.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.string(name);
        self.string(text);
    }

    /// An entry whose value is a contiguous tensor that has the storage `key`, of this type, to itself.
    pub(super) fn tensor(&mut self, name: &str, storage: &str, key: &str, size: &[i64]) {
        self.string(name);
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.tuple(|arguments| {
            arguments.tuple(|id| {
                id.string("storage");
                id.global("torch", storage);
                id.string(key);
                id.string("cpu");
                id.int(size.iter().product());
            });
            arguments.0.push(op::BINPERSID);
            arguments.int(0); // its offset in the storage
            arguments.tuple(|sizes| size.iter().for_each(|&size| sizes.int(size)));
            arguments.tuple(|strides| {
                let stride = |dim: usize| size[dim + 1..].iter().map(|&size| size.max(1)).product();
                (0..size.len()).for_each(|dim| strides.int(stride(dim)));
            });
            arguments.0.push(op::NEWFALSE); // requires_grad
            arguments.ordered_dict(); // backward hooks
        });
        self.0.push(op::REDUCE);
    }

    fn ordered_dict(&mut self) {
        self.global("collections", "OrderedDict");
        self.0.extend([op::EMPTY_TUPLE, op::REDUCE]);
    }

    fn tuple(&mut self, elements: impl FnOnce(&mut Self)) {
        self.0.push(op::MARK);
        elements(self);
        self.0.push(op::TUPLE);
    }

    fn global(&mut self, module: &str, name: &str) {
        self.0.push(op::GLOBAL);
        self.0.extend(format!("{module}\n{name}\n").bytes());
    }

    fn string(&mut self, text: &str) {
        self.0.push(op::BINUNICODE);
        // Names and JSON are shorter than 4 GiB.
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.bytes());
    }

    fn int(&mut self, number: i64) {
        match i32::try_from(number) {
            Ok(number) => self.0.extend([&[op::BININT][..], &number.to_le_bytes()].concat()),
            Err(_) => self.0.extend([&[op::LONG1, 8][..], &number.to_le_bytes()].concat()),
        }
    }
}
