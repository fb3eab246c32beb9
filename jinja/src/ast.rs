//! A template's parts.

use std::sync::Arc;

#[derive(Debug)]
pub enum Stmt {
    Data(String),
    /// `{{ … }}`
    Print(Expr),
    If(Vec<(Expr, Body)>, Body),
    For(Arc<For>),
    Set(Target, Expr),
    /// `{% set x | filters %}…{% endset %}`; the filters' innermost operand is [`Expr::Captured`].
    SetBlock(Target, Expr, Body),
    With(Vec<(Target, Expr)>, Body),
    Macro(Arc<Macro>),
    /// `{% call(…) f(…) %}…{% endcall %}`, a call and what `caller` is in it.
    Call(Expr, Arc<Macro>),
    /// `{% filter f %}…{% endfilter %}`
    Filter(Expr, Body),
    /// Transformers' `{% generation %}`, or a block of inheritance that is `scoped`: its body, in a scope of its own.
    Scope(Body),
    /// A block of inheritance that sees the template's variables only, not those of a loop around it.
    Block(Body),
    Break,
    Continue,
    /// A tag that needs other templates. Running it is an error.
    Elsewhere(String),
}

pub type Body = Vec<(Stmt, usize)>;

#[derive(Debug)]
pub struct For {
    pub target: Target,
    pub items: Expr,
    pub test: Option<Expr>,
    pub body: Body,
    pub otherwise: Body,
    pub recursive: bool,
}

#[derive(Debug)]
pub struct Macro {
    /// None for what is called by `caller`.
    pub name: Option<String>,
    pub parameters: Vec<(String, Option<Expr>)>,
    pub body: Body,
    pub uses_varargs: bool,
    pub uses_kwargs: bool,
    pub uses_caller: bool,
}

#[derive(Debug, Clone)]
pub enum Target {
    Name(String),
    Attribute(String, String),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub enum Expr {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Name(String),
    /// The text that a block has written.
    Captured,
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    /// A first operand and the operations on it. `a + b - c` is evaluated in a loop, however long it is.
    Chain(Box<Expr>, Vec<(Binary, Expr)>),
    /// `a ~ b ~ c`
    Concat(Vec<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    /// `value if test else other`
    Choice(Box<(Expr, Expr)>, Option<Box<Expr>>),
    Attribute(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Arguments),
    Filter(Box<Expr>, String, Arguments),
    Test(Box<Expr>, String, Arguments),
}

#[derive(Debug, Default)]
pub struct Arguments {
    pub positional: Vec<Expr>,
    pub named: Vec<(String, Expr)>,
    pub rest: Option<Box<Expr>>,
    pub named_rest: Option<Box<Expr>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
