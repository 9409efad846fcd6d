//! The environment of a program under test: its channel folder and its NVML.

use std::path::{Path, PathBuf};

use gpumem_fake_nvml::FakeNvml;

/// A private channel folder on tmpfs, and optionally a fake NVML. Both are removed on drop.
pub struct World {
    channels: tempfile::TempDir,
    nvml: Option<FakeNvml>,
    folder: tempfile::TempDir,
}

impl World {
    /// Returns a machine without NVIDIA's library.
    pub fn without_gpu() -> World {
        use std::os::unix::fs::PermissionsExt;
        let private = std::fs::Permissions::from_mode(0o700);
        let channels = tempfile::Builder::new()
            .prefix("gpumem-test-")
            .permissions(private)
            .tempdir_in("/dev/shm");
        World {
            channels: channels.unwrap(),
            nvml: None,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Returns a machine whose NVML plays `scenario` (see `gpumem-fake-nvml`).
    pub fn with_nvml(scenario: &str) -> World {
        let mut world = World::without_gpu();
        world.nvml = Some(FakeNvml::install(world.folder.path(), scenario).unwrap());
        world
    }

    /// Changes NVML's scenario, from the next call on.
    pub fn play(&self, scenario: &str) {
        self.nvml.as_ref().expect("a world with NVML").play(scenario).unwrap();
    }

    /// Returns the channel folder.
    pub fn channels(&self) -> &Path {
        self.channels.path()
    }

    /// Returns the channel files in the folder, without unfinished ones.
    pub fn channel_files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.channels()).unwrap().flatten();
        let named = |name: &str| name.ends_with(".gpumem") && !name.starts_with('.');
        entries
            .filter(|entry| entry.file_name().to_str().is_some_and(named))
            .map(|entry| entry.path())
            .collect()
    }

    /// Returns the environment variables of a program in this world, and in a terminal with all colours.
    pub fn environment(&self) -> Vec<(String, String)> {
        let nvml = self
            .nvml
            .as_ref()
            .map_or_else(|| self.folder.path().join("absent.so"), |nvml| nvml.path().to_owned());
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        [
            ("GPUMEM_DIR", text(self.channels())),
            ("GPUMEM_NVML", text(&nvml)),
            // Without the configuration of whoever runs the tests.
            ("XDG_CONFIG_HOME", text(self.folder.path())),
            ("TERM", "xterm-256color".into()),
            ("COLORTERM", "truecolor".into()),
            ("LC_ALL", "C.UTF-8".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Returns the document of `--json`, which has to succeed.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let output = self.command(&["--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", crate::said(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns a command that runs the program under test in this world, without a terminal.
    pub fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(crate::gpumem_tui());
        command
            .args(args)
            .envs(self.environment())
            .env_remove("NO_COLOR")
            .stdin(std::process::Stdio::null());
        command
    }
}
