//! Batches of mutants before the reader and the program.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use gpumem_channel::Publisher;
use gpumem_tests::{World, publish, said, uuid_of};

use super::bases::{Base, bases};
use super::document::{self, Suspect};
use super::judge::{Judged, Verdict, judge};
use super::mutant::Mutant;
use super::oracle::{self, Claim};
use super::program::{Run, run};
use super::text::harm;
use super::words::{job, set_job};

/// Mutants that are in the program's folder together.
const BATCH: usize = 40;
/// `--once` reads every this many batches, too.
const ONCE: usize = 8;
/// The most faults that are printed.
const PRINTED: usize = 30;

/// Counts of what was seen.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) mutants: usize,
    pub(crate) refused: usize,
    pub(crate) unreadable: usize,
    pub(crate) inconsistent: usize,
    pub(crate) sound: usize,
    /// Mutants whose figures cannot be true, as the oracle says.
    pub(crate) contradictory: usize,
    /// Those of them with a device that the reader believed, or with figures in the program's output that they do not have.
    pub(crate) contradictory_believed: usize,
    /// Runs of the program.
    pub(crate) runs: usize,
}

/// A campaign over channels.
pub(crate) struct Channels {
    bases: Vec<Base>,
    /// A machine with a GPU and one without NVML, each with an intact publisher.
    worlds: [(World, Publisher); 2],
    next: usize,
    pub(crate) tally: Tally,
    faults: Vec<String>,
    guilty: HashSet<String>,
}

impl Channels {
    pub(crate) fn new() -> Channels {
        let world = |world: World| {
            let publisher = publish(&world, uuid_of(0));
            (world, publisher)
        };
        Channels {
            bases: bases(),
            worlds: [world(World::with_nvml("h100")), world(World::without_gpu())],
            next: 0,
            tally: Tally::default(),
            faults: Vec::new(),
            guilty: HashSet::new(),
        }
    }

    pub(crate) fn bases(&self) -> &[Base] {
        &self.bases
    }

    /// Tries mutants and returns their verdicts.
    pub(crate) fn try_all(&mut self, mutants: &[Mutant]) -> Vec<Verdict> {
        let mut verdicts = Vec::with_capacity(mutants.len());
        for batch in mutants.chunks(BATCH) {
            verdicts.extend(self.batch(batch));
        }
        verdicts
    }

    /// Panics if any fault was found.
    #[track_caller]
    pub(crate) fn finish(&self) {
        let told: Vec<&str> = self.faults.iter().take(PRINTED).map(String::as_str).collect();
        let count = self.faults.len();
        assert!(
            told.is_empty(),
            "{count} faults of {} mutants; each line makes its mutant again and can be added to corpus.txt:\n{}\n{:?}",
            self.guilty.len(),
            told.join("\n"),
            self.tally
        );
    }

    fn fault(&mut self, line: &str, text: &str) {
        self.guilty.insert(line.to_owned());
        self.faults.push(format!("{line}\n    {text}"));
    }

    fn batch(&mut self, mutants: &[Mutant]) -> Vec<Verdict> {
        let turn = self.tally.runs;
        let (suspects, folder) = self.place(mutants, turn % 2);
        for suspect in &suspects {
            self.count(suspect);
            for fault in &suspect.judged.faults {
                self.fault(&suspect.line, fault);
            }
        }
        self.tally.runs += 1;
        if let Err(why) = self.report(&suspects, turn % 2) {
            drop(folder);
            self.find_guilty(mutants, turn % 2, &why);
        } else if turn.is_multiple_of(ONCE) {
            let command = self.worlds[turn % 2].0.command(&["--once"]);
            if let Err(why) = run(command).and_then(|run| is_clean(&run)) {
                let lines: Vec<&str> = suspects.iter().map(|suspect| suspect.line.as_str()).collect();
                self.fault(&lines.join("\n"), &format!("--once: {why}"));
            }
        }
        suspects.iter().map(|suspect| suspect.judged.verdict).collect()
    }

    /// Puts mutants into a world's folder as if they had been published, and has the reader read them. Their files are removed when the
    /// returned [`Folder`] is dropped.
    fn place(&mut self, mutants: &[Mutant], world: usize) -> (Vec<Suspect>, Folder) {
        let (world, publisher) = &self.worlds[world];
        let mut folder = Folder::default();
        let ours = publisher.path().file_stem().unwrap().to_str().unwrap();
        let (publisher, _) = ours.rsplit_once('-').unwrap();
        let mut suspects = Vec::with_capacity(mutants.len());
        for mutant in mutants {
            self.next += 1;
            let name = format!("m{}", self.next);
            let base = mutant.base(&self.bases);
            let mut bytes = base.bytes.clone();
            set_job(&mut bytes, &name);
            mutant.apply(&mut bytes, &self.bases);
            let file = format!("{publisher}-{}.gpumem", 1_000 + self.next);
            let path = world.channels().join(&file);
            let mut options = File::options();
            let lock = options.write(true).read(true).create_new(true).mode(0o600).open(&path);
            let lock = lock.unwrap();
            if base.alive {
                lock.lock().unwrap();
                folder.locks.push(lock);
            }
            fs::write(&path, &bytes).unwrap();
            let oracle = oracle::ask(&bytes);
            suspects.push(Suspect {
                line: mutant.to_string(),
                job: Some(name).filter(|name| job(&bytes) == name.as_bytes()),
                alive: base.alive,
                judged: judge(path.clone(), oracle.clone()),
                oracle,
                file,
            });
            folder.paths.push(path);
        }
        (suspects, folder)
    }

    fn count(&mut self, suspect: &Suspect) {
        let tally = &mut self.tally;
        tally.mutants += 1;
        *match suspect.judged.verdict {
            Verdict::Refused => &mut tally.refused,
            Verdict::Unreadable => &mut tally.unreadable,
            Verdict::Inconsistent => &mut tally.inconsistent,
            Verdict::Sound => &mut tally.sound,
        } += 1;
        if is_contradictory(suspect) {
            tally.contradictory += 1;
            let believed = |fault: &String| fault.contains("is believed");
            tally.contradictory_believed += usize::from(suspect.judged.faults.iter().any(believed));
        }
    }

    /// Runs the program and checks its output. Faults of a document are recorded. Returns an error if there is no document.
    fn report(&mut self, suspects: &[Suspect], world: usize) -> Result<(), String> {
        let run = run(self.worlds[world].0.command(&["--json"]))?;
        is_clean(&run)?;
        let document = serde_json::from_slice(&run.stdout).map_err(|error| format!("no JSON: {error}"))?;
        for (about, text) in document::check(&document, suspects, std::process::id()) {
            match about {
                Some(n) => {
                    self.tally.contradictory_believed += usize::from(is_contradictory(&suspects[n]));
                    self.fault(&suspects[n].line, &text);
                }
                None => self.fault("a batch", &text),
            }
        }
        Ok(())
    }

    /// Tries each mutant alone after the program failed with all of them.
    fn find_guilty(&mut self, mutants: &[Mutant], world: usize, why: &str) {
        let before = self.faults.len();
        for mutant in mutants {
            let (suspects, _folder) = self.place(std::slice::from_ref(mutant), world);
            if let Err(why) = self.report(&suspects, world) {
                self.fault(&mutant.to_string(), &why);
            }
        }
        if self.faults.len() == before {
            self.fault("a batch, but none of its mutants alone", why);
        }
    }
}

/// Returns whether a device of a mutant has figures that cannot be true.
fn is_contradictory(suspect: &Suspect) -> bool {
    let claims = suspect.oracle.as_ref().map_or(&[][..], |oracle| &oracle.claims);
    let opened = !matches!(
        suspect.judged,
        Judged {
            verdict: Verdict::Refused,
            ..
        }
    );
    opened && claims.iter().any(|claim| matches!(claim, Claim::Contradictory(_)))
}

/// Checks that there is a report, and that its text is safe to show.
fn is_clean(run: &Run) -> Result<(), String> {
    if run.code != Some(0) {
        return Err(format!("exit {:?}: {}", run.code, said(&run.stderr)));
    }
    let stdout = std::str::from_utf8(&run.stdout).map_err(|error| format!("no text: {error}"))?;
    let lines = stdout.lines().filter(|line| !line.starts_with('{'));
    match lines.chain(said(&run.stderr).lines()).find_map(harm) {
        Some(harm) => Err(harm),
        None => Ok(()),
    }
}

/// The files of a batch, which are removed on drop.
#[derive(Default)]
struct Folder {
    paths: Vec<PathBuf>,
    locks: Vec<File>,
}

impl Drop for Folder {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}
