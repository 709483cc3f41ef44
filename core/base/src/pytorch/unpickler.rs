//! Reads a pickle as `torch.load` does with `weights_only=True`: data, and the few functions that
//! rebuild tensors. Whatever else a pickle names is refused by its name. Nothing is called.

use super::object::{Function, Object, Objects, Storage, global};
use super::op;
use std::collections::HashMap;

/// Why a pickle cannot be read.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// It is not what any program would have written.
    Damaged(String),
    /// It has something that no state dict has.
    Foreign(String),
}

type Result<T> = std::result::Result<T, Refusal>;

pub(super) fn unpickle(pickle: &[u8]) -> Result<Objects> {
    Unpickler { rest: pickle, ..Default::default() }.run()
}

#[derive(Default)]
struct Unpickler<'a> {
    rest: &'a [u8],
    objects: Vec<Object>,
    /// Positions of objects, as are those below.
    stack: Vec<usize>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, usize>,
}

impl<'a> Unpickler<'a> {
    fn run(mut self) -> Result<Objects> {
        loop {
            match self.byte()? {
                op::PROTO => match self.byte()? {
                    op::PROTOCOL => {}
                    other => return Err(Refusal::Foreign(format!("the protocol {other}"))),
                },
                op::STOP => return Ok(Objects { root: self.pop()?, all: self.objects }),
                op::MARK => self.marks.push(self.stack.len()),

                op @ (op::SETITEM | op::SETITEMS) => {
                    let is_one = op == op::SETITEM;
                    let items = if is_one { self.pop_last(2)? } else { self.pop_to_mark()? };
                    let dict = self.stack.last().map(|&dict| &mut self.objects[dict]);
                    let (Some(Object::Dict(entries)), (pairs, [])) = (dict, items.as_chunks::<2>())
                    else {
                        return Err(damaged("items of no dict"));
                    };
                    entries.extend(pairs.iter().map(|&[key, value]| (key, value)));
                }
                // A list's item, or a state, which sets attributes such as the `_metadata` of a module's state dict.
                op::APPEND | op::BUILD => drop(self.pop()?),
                op::APPENDS => drop(self.pop_to_mark()?),

                op @ (op::BINPUT | op::LONG_BINPUT) => {
                    let key: u32 = if op == op::BINPUT { self.byte()?.into() } else { self.u32()? };
                    let last = self.stack.last().ok_or_else(|| damaged(EMPTY))?;
                    self.memo.insert(key, *last);
                }
                op @ (op::BINGET | op::LONG_BINGET) => {
                    let key: u32 = if op == op::BINGET { self.byte()?.into() } else { self.u32()? };
                    let found = self.memo.get(&key);
                    self.stack.push(*found.ok_or_else(|| damaged("nothing of that number"))?);
                }
                op => {
                    let object = self.object(op)?;
                    self.stack.push(self.objects.len());
                    self.objects.push(object);
                }
            }
        }
    }

    fn object(&mut self, op: u8) -> Result<Object> {
        Ok(match op {
            op::NONE | op::NEWTRUE | op::NEWFALSE | op::EMPTY_LIST => Object::Other,
            op::BINFLOAT => self.bytes(8).map(|_| Object::Other)?,
            op::BININT1 => Object::Int(self.byte()?.into()),
            op::BININT2 => Object::Int(u16::from_le_bytes(self.array()?).into()),
            op::BININT => Object::Int(i32::from_le_bytes(self.array()?).into()),
            op::LONG1 => {
                let length = self.byte()?;
                long(self.bytes(length.into())?).map_or(Object::Other, Object::Int)
            }
            op::BINUNICODE => {
                let length = self.u32()?;
                let text = std::str::from_utf8(self.bytes(length as usize)?);
                Object::Text(text.map_err(|_| damaged("text not in UTF-8"))?.to_owned())
            }
            op::GLOBAL => {
                let (module, name) = (self.line()?, self.line()?);
                let unknown = || Refusal::Foreign(format!("{module}.{name}"));
                global(module, name).ok_or_else(unknown)?
            }

            op::EMPTY_TUPLE => Object::Tuple(Vec::new()),
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                Object::Tuple(self.pop_last(usize::from(op - op::TUPLE1) + 1)?)
            }
            op::TUPLE => Object::Tuple(self.pop_to_mark()?),
            op::EMPTY_DICT => Object::Dict(Vec::new()),

            op::BINPERSID => self.pop().and_then(|id| self.storage(id)).map(Object::Storage)?,
            op::REDUCE => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.call(function, arguments)?
            }
            other => return Err(Refusal::Foreign(format!("the operation {other:#04x}"))),
        })
    }

    // === The bytes ===

    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        self.rest.split_off(..count).ok_or_else(|| damaged(CUT_OFF))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(|| damaged(CUT_OFF))?;
        self.rest = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn line(&mut self) -> Result<&'a str> {
        let end = self.rest.iter().position(|&byte| byte == b'\n');
        let line = self.bytes(end.ok_or_else(|| damaged(CUT_OFF))?)?;
        self.byte()?;
        std::str::from_utf8(line).map_err(|_| damaged("a name not in UTF-8"))
    }

    // === The stack ===

    fn pop(&mut self) -> Result<usize> {
        self.stack.pop().ok_or_else(|| damaged(EMPTY))
    }

    fn pop_last(&mut self, count: usize) -> Result<Vec<usize>> {
        let height = self.stack.len().checked_sub(count).ok_or_else(|| damaged(EMPTY))?;
        Ok(self.stack.split_off(height))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<usize>> {
        let height = self.marks.pop().ok_or_else(|| damaged("no mark"))?;
        let count = self.stack.len().checked_sub(height).ok_or_else(|| damaged(EMPTY))?;
        self.pop_last(count)
    }

    // === Tensors ===

    fn elements(&self, tuple: usize) -> Result<Vec<&Object>> {
        let Object::Tuple(elements) = &self.objects[tuple] else { return Err(damaged("no tuple")) };
        Ok(elements.iter().map(|&at| &self.objects[at]).collect())
    }

    /// `persistent_load`
    fn storage(&self, id: usize) -> Result<Storage> {
        let elements = self.elements(id)?;
        let [
            Object::Text(_),
            Object::StorageType(kind),
            Object::Text(key),
            _device,
            Object::Int(numel),
        ] = elements[..]
        else {
            return Err(Refusal::Foreign("an object that is no storage".into()));
        };
        let numel = usize::try_from(*numel).map_err(|_| damaged("a negative size"))?;
        Ok(Storage { key: key.clone(), kind: *kind, numel })
    }

    fn call(&self, function: usize, arguments: usize) -> Result<Object> {
        let Object::Function(function) = self.objects[function] else {
            return Err(damaged("a call of no function"));
        };
        match (function, &self.elements(arguments)?[..]) {
            (Function::OrderedDict, []) => Ok(Object::Dict(Vec::new())),
            (
                Function::RebuildTensor,
                [Object::Storage(storage), Object::Int(offset), size, stride, _grad, _hooks],
            ) => Ok(Object::Tensor {
                storage: storage.clone(),
                offset: *offset,
                size: self.numbers(size)?,
                stride: self.numbers(stride)?,
            }),
            (Function::RebuildParameter, [tensor @ Object::Tensor { .. }, _grad, _hooks]) => {
                Ok((*tensor).clone())
            }
            _ => Err(Refusal::Foreign(format!("unusual arguments of {function:?}"))),
        }
    }

    fn numbers(&self, tuple: &Object) -> Result<Vec<i64>> {
        let refusal = || damaged("a size that is no number");
        let number = |&at: &usize| match self.objects[at] {
            Object::Int(number) if number >= 0 => Ok(number),
            _ => Err(refusal()),
        };
        let Object::Tuple(elements) = tuple else { return Err(refusal()) };
        elements.iter().map(number).collect()
    }
}

const CUT_OFF: &str = "its pickle is cut off";
const EMPTY: &str = "its pickle has too few objects";

fn damaged(what: &str) -> Refusal {
    Refusal::Damaged(what.into())
}

/// A number in two's complement, if it has no more than 64 bits.
fn long(bytes: &[u8]) -> Option<i64> {
    let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
    let mut number = [if negative { 0xff } else { 0 }; 8];
    number.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(number))
}
