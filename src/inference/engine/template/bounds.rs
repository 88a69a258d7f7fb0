//! How much a chat template may make: every byte of text and every cell of a list is counted, before it is made where it
//! can be told, and a rendering that would make more than its share is refused. What is built stays shallow and holds no
//! namespace, so that nothing can contain itself.

use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, Value, escape_formatter, filters, functions,
};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::to_json;
use crate::foundation::base::limits::{
    TEMPLATE_COUNT_MAX, TEMPLATE_DEPTH_MAX, TEMPLATE_MADE_BYTES_MAX, TEMPLATE_RENDERED_BYTES_MAX,
};

// No identifier begins like these, so no template can name them.
pub(super) const BEFORE_CONCAT: &str = "\0concat";
pub(super) const BEFORE_ADD: &str = "\0add";
pub(super) const BEFORE_MULTIPLY: &str = "\0multiply";
pub(super) const SETTLE: &str = "\0settle";

/// Bytes that an element of a list or a dict counts as.
const CELL: usize = 48;
/// So many bytes an escaped letter takes at most.
const ESCAPED: usize = 6;

/// Bytes made so far in one rendering.
#[derive(Default)]
struct Made(usize);

/// How many bytes a function makes of its arguments, at most; what it gives back is weighed besides.
type Estimate = fn(&[Value]) -> Result<usize, Error>;

/// Gives `environment` what a chat template may use, each bounded, and the checks.
pub(super) fn install(environment: &mut Environment<'_>) {
    // Those of minijinja's that Jinja has not, and none of which is bounded here.
    for name in ["bool", "chain", "lines", "pprint", "split", "urlencode", "zip"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
    environment.set_formatter(write);
    environment.set_unknown_method_callback(method);
    environment.add_function(BEFORE_CONCAT, |state: &mut State, left: Value, right: Value| {
        let bytes = printed(&left)?.saturating_add(printed(&right)?);
        spend(state, bytes).map(|()| vec![right, left])
    });
    environment.add_function(BEFORE_ADD, |state: &mut State, left: Value, right: Value| {
        spend(state, bytes(&left).saturating_add(bytes(&right))).map(|()| vec![right, left])
    });
    environment.add_function(BEFORE_MULTIPLY, |state: &mut State, left: Value, right: Value| {
        let times = left.as_usize().or_else(|| right.as_usize()).unwrap_or_default();
        spend(state, bytes(&left).max(bytes(&right)).saturating_mul(times)).map(|()| vec![right, left])
    });
    environment.add_function(SETTLE, settle);

    let mut function = |name: &'static str, own: Value| environment.add_function(name, bounded(own, nothing));
    function("range", Value::from_function(functions::range));
    function("dict", Value::from_function(functions::dict));
    environment.add_function("namespace", |state: &mut State, defaults: Rest<ValueOrKwargs>| {
        let defaults = defaults.into_values();
        defaults.iter().try_for_each(|value| settle(state, value.clone()).map(drop))?;
        // Not settled: it is the one thing that may change.
        Value::from_function(functions::namespace).call(state, &defaults)
    });

    let mut filter = |name: &'static str, own: Value, estimate: Estimate| {
        environment.add_filter(name, bounded(own, estimate));
    };
    macro_rules! filters {
        ($estimate:expr; $($name:ident)*) => {
            $(filter(stringify!($name), Value::from_function(filters::$name), $estimate);)*
        };
    }
    filters!(nothing; abs attr capitalize default dictsort escape first float groupby int items last length lower map);
    filters!(nothing; max min reject rejectattr reverse round safe select selectattr sort string sum title trim unique);
    filters!(nothing; upper);
    filters!(counted; batch indent slice);
    filters!(formatted; format);
    filters!(joined; join);
    filters!(letters; list);
    filters!(replaced; replace);
    filter("count", Value::from_function(filters::length), nothing);
    filter("d", Value::from_function(filters::default), nothing);
    filter("e", Value::from_function(filters::escape), nothing);
    filter("tojson", Value::from_function(to_json), nothing);
}

/// `own`, refused where it would make too much.
fn bounded(
    own: Value,
    estimate: Estimate,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    move |state, args| {
        let args = args.into_values();
        call(state, &args, estimate, |state| own.call(state, &args))
    }
}

/// Calls `own` with `args`, unless that would make too much.
fn call(
    state: &mut State,
    args: &[Value],
    estimate: Estimate,
    own: impl FnOnce(&mut State) -> Result<Value, Error>,
) -> Result<Value, Error> {
    // Many functions print what is no text.
    args.iter().try_for_each(|value| printed(value).map(drop))?;
    spend(state, estimate(args)?)?;
    let made = own(state)?;
    spend(state, made.as_str().map_or(0, str::len))?;
    settle(state, made)
}

/// Python's methods of texts, lists and dicts.
fn method(state: &mut State, own: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let all: Vec<Value> = std::iter::once(own).chain(args).cloned().collect();
    let estimate: Estimate = match name {
        "join" => |all| joined(&all.iter().rev().cloned().collect::<Vec<_>>()),
        "replace" => replaced,
        "split" | "splitlines" => pieces,
        "format" => formatted,
        _ => nothing,
    };
    call(state, &all, estimate, |state| unknown_method_callback(state, own, name, args))
}

/// Prints a value, into the output or into what is captured.
fn write(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let bytes = printed(value)?;
    if *state.auto_escape() == AutoEscape::None {
        spend(state, bytes)?;
        return match value.as_str() {
            Some(text) => out.write_str(text).map_err(Error::from),
            None => write!(out, "{value}").map_err(Error::from),
        };
    }
    spend(state, bytes.saturating_mul(ESCAPED))?;
    escape_formatter(out, state, value)
}

/// Counts `bytes` as made.
fn spend(state: &mut State, bytes: usize) -> Result<(), Error> {
    let made = state.get_or_insert_extension_with(Made::default);
    made.0 = made.0.saturating_add(bytes);
    if made.0 > TEMPLATE_MADE_BYTES_MAX {
        return Err(refusal(format!("it makes more than {TEMPLATE_MADE_BYTES_MAX} bytes of text and lists")));
    }
    Ok(())
}

/// A value that was built: its cells count, and what only says how it is to be made is made.
fn settle(state: &mut State, value: Value) -> Result<Value, Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(value);
    }
    let mut weight = Weight::default();
    weight.add(&value, 0)?;
    spend(state, weight.cells.saturating_mul(CELL))?;
    if value.kind() == ValueKind::Iterable { Ok(value.try_iter()?.collect()) } else { Ok(value) }
}

/// What a value comes to, everything in it counted as often as it stands there.
#[derive(Default)]
struct Weight {
    cells: usize,
    text: usize,
}

impl Weight {
    fn add(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > TEMPLATE_DEPTH_MAX {
            return Err(refusal(format!("it nests values deeper than {TEMPLATE_DEPTH_MAX}")));
        }
        self.cells += 1;
        match value.kind() {
            ValueKind::String => self.text = self.text.saturating_add(value.as_str().map_or(0, str::len)),
            ValueKind::Seq | ValueKind::Iterable => {
                value.try_iter()?.try_for_each(|item| self.add(&item, depth + 1))?;
            }
            ValueKind::Map => {
                if depth > 0 && is_namespace(value) {
                    return Err(refusal("it puts a namespace into another value".to_owned()));
                }
                for key in value.try_iter()? {
                    self.add(&key, depth + 1)?;
                    self.add(&value.get_item(&key)?, depth + 1)?;
                }
            }
            _ => {}
        }
        if self.bytes() > TEMPLATE_RENDERED_BYTES_MAX {
            return Err(refusal(format!("a value comes to more than {TEMPLATE_RENDERED_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.cells.saturating_mul(CELL).saturating_add(self.text)
    }
}

/// Bytes of `value` in print, at most.
fn printed(value: &Value) -> Result<usize, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.len());
    }
    let mut weight = Weight::default();
    weight.add(value, 0)?;
    Ok(weight.bytes())
}

/// Bytes of a text, or of a list's own cells.
fn bytes(value: &Value) -> usize {
    let cells = || value.len().unwrap_or_default().saturating_mul(CELL);
    value.as_str().map_or_else(cells, str::len)
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn refusal(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

#[expect(clippy::unnecessary_wraps, reason = "the form that estimates have")]
fn nothing(_: &[Value]) -> Result<usize, Error> {
    Ok(0)
}

/// A list of the pieces of the first argument, cut at the second.
#[expect(clippy::unnecessary_wraps, reason = "the form that estimates have")]
fn pieces(args: &[Value]) -> Result<usize, Error> {
    let Some(whole) = args.first().and_then(Value::as_str) else { return Ok(0) };
    let cuts = match args.get(1).and_then(Value::as_str) {
        Some(cut) if !cut.is_empty() => whole.matches(cut).count(),
        _ => whole.chars().filter(|c| c.is_whitespace()).count(),
    };
    Ok(whole.len().saturating_add(cuts.saturating_mul(CELL)))
}

/// A list of a text's letters.
#[expect(clippy::unnecessary_wraps, reason = "the form that estimates have")]
fn letters(args: &[Value]) -> Result<usize, Error> {
    Ok(args.first().and_then(Value::as_str).map_or(0, |text| text.len().saturating_mul(CELL)))
}

/// The first argument's items with the others between them.
fn joined(args: &[Value]) -> Result<usize, Error> {
    let Some((items, between)) = args.split_first() else { return Ok(0) };
    let count = items.as_str().map(str::len).or_else(|| items.len()).unwrap_or_default();
    Ok(printed(items)?.saturating_add(count.saturating_mul(total(between)?)))
}

/// The first argument with the third in place of the second.
fn replaced(args: &[Value]) -> Result<usize, Error> {
    let Some((whole, rest)) = args.split_first() else { return Ok(0) };
    let length = printed(whole)?;
    let times = match (whole.as_str(), rest.first().and_then(Value::as_str)) {
        (Some(whole), Some(old)) if !old.is_empty() => whole.matches(old).count(),
        _ => length + 1,
    };
    Ok(length.saturating_add(times.saturating_mul(total(rest.get(1..).unwrap_or_default())?)))
}

/// The first argument in lists or lines of as many as the others say.
fn counted(args: &[Value]) -> Result<usize, Error> {
    let Some((whole, rest)) = args.split_first() else { return Ok(0) };
    let count = greatest(rest)?;
    if count > TEMPLATE_COUNT_MAX {
        return Err(refusal(format!("{count} is more than the {TEMPLATE_COUNT_MAX} that a filter takes as a width")));
    }
    let lines = whole.as_str().map_or(0, |text| text.matches('\n').count());
    Ok(printed(whole)?.saturating_add(count.saturating_mul(lines + CELL)))
}

/// The first argument with the others in its places, as wide as it or they say.
fn formatted(args: &[Value]) -> Result<usize, Error> {
    let Some((whole, rest)) = args.split_first() else { return Ok(0) };
    let form = whole.as_str().unwrap_or_default();
    let places = form.matches(['{', '%']).count();
    let widths = form.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widest = widths.map(|digits| digits.parse().unwrap_or(usize::MAX)).max().unwrap_or_default();
    let each = total(rest)?.saturating_add(widest).saturating_add(greatest(rest)?);
    Ok(form.len().saturating_add(places.saturating_mul(each)))
}

/// Bytes of all of `values` in print.
fn total(values: &[Value]) -> Result<usize, Error> {
    values.iter().map(printed).try_fold(0, |sum, bytes| Ok(usize::saturating_add(sum, bytes?)))
}

/// The greatest integer among `values`, those in dicts included, whatever its sign.
fn greatest(values: &[Value]) -> Result<usize, Error> {
    let mut greatest = 0;
    for value in values {
        let own = match value.kind() {
            ValueKind::Number => i64::try_from(value.clone()).map_or(usize::MAX, |n| n.unsigned_abs() as usize),
            ValueKind::Map => {
                let inner = value.try_iter()?.map(|key| value.get_item(&key)).collect::<Result<Vec<_>, _>>()?;
                inner
                    .into_iter()
                    .filter_map(|n| i64::try_from(n).ok())
                    .map(|n| n.unsigned_abs() as usize)
                    .max()
                    .unwrap_or(0)
            }
            _ => 0,
        };
        greatest = greatest.max(own);
    }
    Ok(greatest)
}
