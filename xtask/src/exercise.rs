//! `cargo xtask exercise 7`: shows the task of one of the book's exercises in code, and checks on two ranks what the
//! reader has written.

use crate::{prelude::*, setup, setup::Level};

const FOLDER: &str = "book/exercises/src";

/// Where the reader's lines are missing.
const HOLE: &str = "    todo!(";

struct Exercise {
    /// In the checkout.
    file: String,
    /// The title and the chapter.
    title: String,
    task: String,
    /// The line of the hole, until it is filled.
    hole: Option<usize>,
}

/// Without a number, lists all exercises.
pub(crate) fn run(workspace: &Workspace, number: Option<usize>) -> Result<()> {
    let exercises = exercises()?;
    let Some(number) = number else {
        for (number, Exercise { title, hole, .. }) in (1..).zip(exercises) {
            println!("[{}] {number:2} {title}", if hole.is_some() { ' ' } else { 'x' });
        }
        return Ok(());
    };
    let Exercise { file, title, task, hole } = number
        .checked_sub(1)
        .and_then(|place| exercises.get(place))
        .with_context(|| format!("there is no exercise {number}, only 1 to {}", exercises.len()))?;
    println!("Exercise {number}: {title}\n{task}\n");
    if let Some(line) = hole {
        bail!("exercise {number} still has its hole: write the missing lines at {file}:{line}");
    }
    setup::ensure(workspace, Level::for_this_machine())?;
    let mut build = workspace.cargo();
    command::run_quietly(build.args(["build", "--release", "--package", "exercises"]))?;
    let mut check = Command::new(workspace.release_executable("exercises"));
    let passes = check.arg(number.to_string()).status()?.success();
    ensure!(passes, "exercise {number} does not pass yet; it is in {file}");
    Ok(())
}

fn exercises() -> Result<Vec<Exercise>> {
    let mut files = entries(&checkout().join(FOLDER))?;
    files.sort();
    let names = files.iter().filter_map(|file| file.file_name()?.to_str());
    // Such as e07_ring.rs, but not an editor's copy of it.
    let is_exercise =
        |name: &&str| name.ends_with(".rs") && matches!(name.as_bytes(), [b'e', b'0'..=b'9', ..]);
    names.filter(is_exercise).map(exercise).collect()
}

fn exercise(name: &str) -> Result<Exercise> {
    let file = format!("{FOLDER}/{name}");
    let text = read(&checkout().join(Path::new(&file)))?;
    let comment = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let mut comment: Vec<_> = comment.collect();
    let title = comment.remove(0).to_owned();
    let hole = text.lines().position(|line| line.starts_with(HOLE)).map(|place| place + 1);
    Ok(Exercise { file, title, task: comment.join("\n"), hole })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exercise_is_found_and_names_a_chapter() {
        let exercises = exercises().unwrap();
        assert!(exercises.len() > 20);
        for (number, Exercise { file, title, task, .. }) in (1..).zip(exercises) {
            assert!(file.contains(&format!("/e{number:02}_")) && task.starts_with('\n'), "{file}");
            let (_, chapter) = title.split_once(" (chapter: ").expect("it names its chapter");
            let chapter = checkout().join("book/src").join(chapter.trim_end_matches(')'));
            assert!(chapter.exists(), "{file}: there is no {}", chapter.display());
        }
    }
}
