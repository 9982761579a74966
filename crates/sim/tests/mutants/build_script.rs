//! The build script fails where a mutant no longer fits the sources.

#[path = "../../build.rs"]
#[allow(dead_code, unreachable_pub)]
mod build;

use build::{mutate, parse};

const SOURCE: &str = "\
impl Rule {
    pub(super) fn weigh(&self) -> bool {
        self.first()
            && self.second()
    }

    fn other(&self) {
        self.done();
        self.done();
    }
}
";

fn mutated(changes: &str) -> Result<String, String> {
    let mut mutants = Vec::new();
    parse(changes, &mut mutants)?;
    mutate("a.rs", SOURCE, &mutants).map_err(|it| it.join("\n"))
}

#[test]
fn each_mutant_is_an_arm_of_the_function() {
    let changes = "\
# A comment.
mutant A: forgets the second
cases: X Y
--- a.rs
-        self.first() && self.second()
+        self.first()

mutant B: never
--- a.rs
     pub(super) fn weigh(&self) -> bool {
+        return false;
--- b.rs
-        elsewhere();
";
    let wanted = "\
impl Rule {
    pub(super) fn weigh(&self) -> bool {
match mutants::active() {
1 => {
        self.first()
}
2 => {
        return false;
        self.first()
            && self.second()
}
_ => {
        self.first()
            && self.second()
}
}
    }

    fn other(&self) {
        self.done();
        self.done();
    }
}
";
    assert_eq!(mutated(changes).as_deref(), Ok(wanted));
}

#[test]
fn a_mutant_that_does_not_fit_is_named() {
    let fails = |changes: &str, why: &str| {
        let changes = format!("mutant A: bug\n--- a.rs\n{changes}");
        assert_eq!(mutated(&changes).unwrap_err(), why);
    };
    fails("-self.third()\n", "mutant A: crates/a.rs does not contain these lines:\nself.third()\n");
    // A part of a line.
    fails("-self.second()\n", "mutant A: crates/a.rs does not contain these lines:\nself.second()\n");
    fails("-self.done();\n", "mutant A: crates/a.rs contains these lines 2 times:\nself.done();\n");
    fails("-impl Rule {\n", "mutant A: crates/a.rs has no function around these lines:\nimpl Rule {\n");
}

#[test]
fn a_line_that_cannot_be_read_is_named() {
    let fails = |text: &str, why: &str| assert_eq!(mutated(text).unwrap_err(), why);
    fails("mutant A\n", "1: not `mutant NAME: BUG`: \"mutant A\"");
    fails("-x\n", "1: a line before the first mutant: \"-x\"");
    fails("mutant A: a\n-x\n", "2: a change without a line `--- FILE`: \"-x\"");
    fails("mutant A: a\n--- a.rs\nx\n", "3: a line of a change begins with `-`, `+` or a space: \"x\"");
    fails("mutant A: a\n--- a.rs\n-x\n y\n-z\n", "5: a blank line must divide two changes: \"-z\"");
    fails("mutant A: a\n--- a.rs\n-x\n\nmutant A: b\n", "5: this name is taken: \"mutant A: b\"");
    fails("mutant A: a\n", " mutant A changes nothing");
}
