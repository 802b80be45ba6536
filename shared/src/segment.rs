//! The mapped file: created, filled and published by a gateway; opened read-only by monitors.
//!
//! The only `unsafe` of the project is here: it turns a map into words. Nothing ever forms a `&mut` or a `&[u8]` over
//! the map, so that what another process does to the file can't break a promise of the language; only a truncation
//! could end us (`SIGBUS`), and nobody truncates: a restart makes a new file, and a reader compares the length first.
#![expect(unsafe_code, reason = "a map becomes words here, and nowhere else")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};

use crate::layout::{HEADER_BYTES, MAGIC, State, header};

/// Who may read a segment, beside root. Nobody but its owner ever writes one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Readers {
    /// The gateway's own user.
    #[default]
    Owner,
    /// The members of the file's group, too: the process's own, or the directory's where that has the setgid bit.
    Group,
}

impl Readers {
    /// Mode of a segment and its lock. Whoever may read the lock can tell whether the gateway lives.
    const fn file_mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o640,
        }
    }

    /// Mode of a directory of segments.
    const fn directory_mode(self) -> u32 {
        match self {
            Self::Owner => 0o700,
            Self::Group => 0o750,
        }
    }
}

/// How long a starting gateway retries a lock that a monitor may just be probing.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// A file in memory, as words.
#[derive(Debug)]
pub struct Map {
    raw: MmapRaw,
    words: usize,
}

impl Map {
    /// Maps `file`'s first `bytes` bytes for writing.
    ///
    /// # Errors
    ///
    /// What the system says.
    fn writable(file: &File, bytes: usize) -> io::Result<Self> {
        // Its pages are there, since the file's are; which of them count as ours is told by the first touch of each, a
        // microsecond of the exporter's. Touched all at once, they were a third of an idle gateway's memory.
        let raw = MmapOptions::new().len(bytes).map_raw(file)?;
        Ok(Self {
            raw,
            words: bytes / 8,
        })
    }

    /// Maps all of `file`, read-only. Storing into it would end the process, so nobody outside can reach a store.
    ///
    /// # Errors
    ///
    /// What the system says; or [`io::ErrorKind::UnexpectedEof`] for a file too short to hold a header.
    fn read_only(file: &File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if bytes < HEADER_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "too short to be a segment",
            ));
        }
        let raw = MmapOptions::new().len(bytes).map_raw_read_only(file)?;
        Ok(Self {
            raw,
            words: bytes / 8,
        })
    }

    /// Gives the pages that were touched back to the system.
    fn let_go(&self) {
        // SAFETY: the map is shared and of a file, so that its pages are read from there again: words that were, or are
        // being, read have the file's value before and after.
        let _ = unsafe { self.raw.unchecked_advise(UncheckedAdvice::DontNeed) };
    }

    /// The words of the file.
    #[must_use]
    #[expect(clippy::cast_ptr_alignment, reason = "a map begins on a page")]
    pub fn words(&self) -> &[AtomicU64] {
        let first = self.raw.as_ptr().cast::<AtomicU64>();
        // SAFETY: the constructors mapped `words` * 8 bytes or more; a map begins on a page, so it is aligned; any bits
        // are a valid `AtomicU64`; the map lives as long as `self`; and only atomic words are ever made of it.
        unsafe { slice::from_raw_parts(first, self.words) }
    }
}

/// A segment that this process writes. Dropping it leaves the file for a post-mortem; [`remove`](Self::remove) takes it
/// away after an orderly end.
#[derive(Debug)]
pub struct Segment {
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    File {
        map: Map,
        path: PathBuf,
        /// Held for life: whoever can take it knows that we are dead.
        _lock: File,
    },
    /// No file could be made. Figures are kept all the same, for `/metrics`.
    Heap(Box<[AtomicU64]>),
}

impl Segment {
    /// Creates a segment of `bytes` at `path` for its owner alone: see [`create_for`](Self::create_for).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn create(path: &Path, bytes: usize) -> io::Result<Self> {
        Self::create_for(Readers::Owner, path, bytes)
    }

    /// Creates a segment of `bytes` at `path` for `readers`, and its lock beside it. It can't be seen until
    /// [`publish`](Self::publish), but for its lock.
    ///
    /// A file of that name that a dead gateway left is replaced.
    ///
    /// # Errors
    ///
    /// When another live gateway has the name, something is there that is no segment of ours, or the system has no room
    /// (`fallocate` says so now, where a later store would end the process).
    pub fn create_for(readers: Readers, path: &Path, bytes: usize) -> io::Result<Self> {
        may_be_replaced(path)?;
        let mode = readers.file_mode();
        let lock = take_lock(&lock_path(path), mode)?;
        let draft = path.with_extension(format!("{}.tmp", std::process::id()));
        remove_if_there(&draft)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&draft)?;
        let made = (|| {
            // The mode above went through the umask; this one does not.
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)?;
            Map::writable(&file, bytes)
        })();
        match made {
            Ok(map) => Ok(Self {
                backing: Backing::File {
                    map,
                    path: path.to_owned(),
                    _lock: lock,
                },
            }),
            Err(error) => {
                let _ = fs::remove_file(&draft);
                let _ = fs::remove_file(lock_path(path));
                Err(error)
            }
        }
    }

    /// A segment that no other process can see.
    #[must_use]
    pub fn on_heap(bytes: usize) -> Self {
        Self {
            backing: Backing::Heap((0..bytes / 8).map(|_| AtomicU64::new(0)).collect()),
        }
    }

    /// Its words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        match &self.backing {
            Backing::File { map, .. } => map.words(),
            Backing::Heap(words) => words,
        }
    }

    /// Where it is, if other processes can see it.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.backing {
            Backing::File { path, .. } => Some(path),
            Backing::Heap(_) => None,
        }
    }

    /// Writes the magic word, and gives the file its name.
    ///
    /// # Errors
    ///
    /// What the system says of the renaming.
    pub fn publish(&self) -> io::Result<()> {
        self.words()[header::MAGIC].store(MAGIC, Ordering::Release);
        if let Backing::File { path, .. } = &self.backing {
            fs::rename(
                path.with_extension(format!("{}.tmp", std::process::id())),
                path,
            )?;
        }
        Ok(())
    }

    /// Tells readers what the gateway is doing.
    pub fn set_state(&self, state: State) {
        self.words()[header::STATE].store(state as u64, Ordering::Release);
    }

    /// Takes the file and its lock away, after an orderly end. Readers that have it mapped keep what they see.
    pub fn remove(&self) {
        self.set_state(State::Stopped);
        if let Backing::File { path, .. } = &self.backing {
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(lock_path(path));
        }
    }
}

/// Whether the file system is kept in memory. On others a plain store may wait for the disk.
///
/// # Errors
///
/// What the system says.
pub fn is_in_memory(path: &Path) -> io::Result<bool> {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let kind = rustix::fs::statfs(path)?.f_type;
    Ok(kind == TMPFS || kind == RAMFS)
}

/// Makes `directory` for `readers` if it is not there, and checks that nobody else can write in it. One that is there
/// keeps its mode: it may be somebody's home.
///
/// # Errors
///
/// When it can't be made, is no directory, belongs to somebody else, or others may write in it; or when `readers` could
/// not get to what is in it.
pub fn own_directory(readers: Readers, directory: &Path) -> io::Result<()> {
    match fs::DirBuilder::new()
        .recursive(true)
        .mode(readers.directory_mode())
        .create(directory)
    {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(directory)?;
    let complaint = if !found.is_dir() {
        "is no directory"
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        "belongs to another user"
    } else if found.mode() & 0o022 != 0 {
        "can be written by others"
    } else if readers == Readers::Group && found.mode() & 0o050 != 0o050 {
        "can't be read by its group"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, complaint))
}

/// The lock beside a segment.
#[must_use]
pub fn lock_path(segment: &Path) -> PathBuf {
    let mut name = segment.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Whether the gateway that wrote `segment` still lives: it holds the lock.
#[must_use]
pub fn is_alive(segment: &Path) -> bool {
    let Ok(lock) = open_to_read(&lock_path(segment)) else {
        return false;
    };
    // Taken, the lock is given back at once, by the drop.
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// A segment that another process writes.
#[derive(Debug)]
pub struct Opened {
    map: Map,
    file: File,
    path: PathBuf,
    inode: (u64, u64),
}

impl Opened {
    /// Opens the segment at `path`.
    ///
    /// # Errors
    ///
    /// What the system says; or [`io::ErrorKind::InvalidData`] when it does not begin with the magic word.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open_to_read(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a file"));
        }
        let map = Map::read_only(&file)?;
        if map.words()[header::MAGIC].load(Ordering::Acquire) != MAGIC {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not a segment of a gateway",
            ));
        }
        Ok(Self {
            map,
            file,
            path: path.to_owned(),
            inode: (found.dev(), found.ino()),
        })
    }

    /// Its words; none once somebody has truncated the file, since reading on would end the process.
    #[must_use]
    pub fn words(&self) -> Option<&[AtomicU64]> {
        let words = self.map.words();
        let long_enough = self
            .file
            .metadata()
            .is_ok_and(|found| found.len() >= words.len() as u64 * 8);
        long_enough.then_some(words)
    }

    /// Gives the pages that were read back to the system, so that the gateway's memory is not counted as the reader's,
    /// too. They are there again when they are read again.
    pub fn let_go(&self) {
        self.map.let_go();
    }

    /// Where it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its path now names another file, as after a restart; or none.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .map_or(true, |found| (found.dev(), found.ino()) != self.inode)
    }
}

/// Opens what may be anything: through no link, and without waiting for the far end of a pipe.
fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags_of(flags))
        .open(path)
}

fn flags_of(flags: rustix::fs::OFlags) -> i32 {
    i32::try_from(flags.bits()).expect("open flags fit an int")
}

/// Refuses to put a segment in the place of anything but a segment of this user: a name can be mistyped, and another's
/// file is not ours to take away, not even for root.
fn may_be_replaced(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.uid() != rustix::process::geteuid().as_raw() {
        let complaint = "a file of another user is in the way";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, complaint));
    }
    Opened::open(path).map(drop).map_err(|error| {
        let complaint = format!("something else is in the way: {error}");
        io::Error::new(io::ErrorKind::AlreadyExists, complaint)
    })
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Takes the lock, made if it is not there. Waits a moment for a monitor that is just probing it.
fn take_lock(path: &Path, mode: u32) -> io::Result<File> {
    let since = Instant::now();
    loop {
        if let Some(lock) = claim(path)? {
            lock.set_permissions(fs::Permissions::from_mode(mode))?;
            return Ok(lock);
        }
        if since.elapsed() >= LOCK_PATIENCE {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another live gateway writes there",
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Takes the lock, made if it is not there. None while somebody has it, or where its last holder has taken the file away
/// in the meantime: nobody would find it.
fn claim(path: &Path) -> io::Result<Option<File>> {
    let lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(Readers::Owner.file_mode())
        .custom_flags(flags_of(rustix::fs::OFlags::NOFOLLOW))
        .open(path)?;
    match lock.try_lock() {
        Ok(()) => Ok(is_at(&lock, path).then_some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether `path` still names the file that is open as `file`.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

/// The directories that a gateway tries for its segment, best first: systemd's runtime directory, then shared memory,
/// then the login's runtime directory. All are tmpfs on usual systems.
#[must_use]
pub fn default_directories() -> Vec<PathBuf> {
    let mut directories = vec![];
    if let Some(runtime) = std::env::var_os("RUNTIME_DIRECTORY") {
        directories.extend(std::env::split_paths(&runtime).take(1));
    }
    directories.push(format!("/dev/shm/bifrost-{}", rustix::process::geteuid().as_raw()).into());
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR") {
        directories.push(PathBuf::from(runtime).join("bifrost"));
    }
    directories
}

/// The directories that a monitor searches: those of a gateway that it could have started itself, and the one of a
/// service.
#[must_use]
pub fn search_directories() -> Vec<PathBuf> {
    let service = PathBuf::from("/run/bifrost");
    let mut directories = default_directories();
    if !directories.contains(&service) {
        directories.push(service);
    }
    directories
}

/// Whether `path`, as a user wrote it, names one segment rather than a directory of them.
#[must_use]
pub fn names_a_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "seg")
}

/// The segments in `directory`, those of living gateways first, then the newest first.
#[must_use]
pub fn in_directory(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| names_a_file(&entry.path()))
        .filter_map(|entry| {
            let changed = entry
                .metadata()
                .ok()?
                .created()
                .or_else(|_| entry.metadata()?.modified())
                .ok()?;
            let path = entry.path();
            Some((is_alive(&path), changed, path))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, _, path)| path).collect()
}

/// Removes what dead gateways left in `directory`: segments and their locks, and what one that died while it started had
/// begun. By name all are a gateway's own; all else is somebody's.
pub fn tidy(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some((segment, part)) = of_a_gateway(&path) else {
            continue;
        };
        let is_somebodys = part == Part::Segment && Opened::open(&path).is_err();
        // The lock is kept until all is gone, so that nobody begins anew under that name meanwhile.
        if !is_somebodys && let Ok(Some(_lock)) = claim(&lock_path(&segment)) {
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(lock_path(&segment));
        }
    }
}

/// What a gateway makes files for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Segment,
    Lock,
    Draft,
}

/// The segment that a file belongs to, and what it is of it, if its name is one that a gateway makes of its process id.
fn of_a_gateway(path: &Path) -> Option<(PathBuf, Part)> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let name = path.file_name()?.to_str()?.strip_prefix("gateway-")?;
    let (number, rest) = name.split_once('.')?;
    let part = match rest {
        "seg" => Part::Segment,
        "seg.lock" => Part::Lock,
        _ if rest.strip_suffix(".tmp").is_some_and(is_number) => Part::Draft,
        _ => return None,
    };
    let segment = path.with_file_name(format!("gateway-{number}.seg"));
    is_number(number).then_some((segment, part))
}

/// The system's monotonic clock, nanoseconds: the same for every process of the machine, so heartbeats are told in it.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The kernel's boot id as two words; zero where it can't be read.
#[must_use]
pub fn boot_id() -> [u64; 2] {
    let mut text = String::new();
    let read = File::open("/proc/sys/kernel/random/boot_id")
        .and_then(|mut file| file.read_to_string(&mut text));
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match (read, hex.get(..16), hex.get(16..32)) {
        (Ok(_), Some(first), Some(second)) => {
            [first, second].map(|half| u64::from_str_radix(half, 16).unwrap_or(0))
        }
        _ => [0, 0],
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()
            .unwrap()
    }

    #[test]
    fn a_segment_is_seen_only_once_it_is_whole() {
        let scratch = scratch();
        let path = scratch.path().join("gateway-1.seg");
        let segment = Segment::create(&path, 8_192).unwrap();
        assert!(!path.exists());
        segment.words()[700].store(7, Ordering::Relaxed);
        segment.publish().unwrap();
        let opened = Opened::open(&path).unwrap();
        assert_eq!(opened.words().unwrap()[700].load(Ordering::Relaxed), 7);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn life_is_told_by_the_lock_and_death_frees_the_name() {
        let scratch = scratch();
        let path = scratch.path().join("gateway-1.seg");
        let segment = Segment::create(&path, 8_192).unwrap();
        segment.publish().unwrap();
        assert!(is_alive(&path));
        assert_eq!(
            Segment::create(&path, 8_192).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        let opened = Opened::open(&path).unwrap();
        drop(segment);
        assert!(!is_alive(&path));
        let next = Segment::create(&path, 8_192).unwrap();
        next.publish().unwrap();
        assert!(opened.is_replaced());
        next.remove();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_truncated_segment_is_noticed_before_it_is_read() {
        let scratch = scratch();
        let path = scratch.path().join("gateway-1.seg");
        let segment = Segment::create(&path, 8_192).unwrap();
        segment.publish().unwrap();
        let opened = Opened::open(&path).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(10)
            .unwrap();
        assert!(opened.words().is_none());
        assert_eq!(
            Opened::open(&path).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn what_is_no_segment_of_ours_stays_where_it_is() {
        let scratch = scratch();
        let path = scratch.path().join("notes.seg");
        let refused = || {
            let error = Segment::create(&path, 8_192).unwrap_err();
            (error.kind(), error.to_string())
        };
        fs::write(&path, "notes").unwrap();
        assert_eq!(refused().0, io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"notes");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(refused().0, io::ErrorKind::AlreadyExists);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(refused().1, "something else is in the way: not a file");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_by_the_name_of_a_segment_or_a_lock_holds_nobody() {
        let scratch = scratch();
        let path = scratch.path().join("gateway-1.seg");
        for pipe in [&path, &lock_path(&path)] {
            let mode = rustix::fs::Mode::RUSR;
            rustix::fs::mkfifoat(rustix::fs::CWD, pipe, mode).unwrap();
        }
        assert!(!is_alive(&path));
        let error = Opened::open(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_probing_monitor_delays_a_gateway_and_one_that_keeps_the_lock_turns_it_away() {
        let scratch = scratch();
        let path = scratch.path().join("gateway-1.seg");
        let lock = File::create(lock_path(&path)).unwrap();
        for is_shared in [true, false] {
            if is_shared {
                lock.try_lock_shared().unwrap();
            } else {
                lock.try_lock().unwrap();
            }
            let since = Instant::now();
            let error = Segment::create(&path, 8_192).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(since.elapsed() >= LOCK_PATIENCE);
            assert!(since.elapsed() < 10 * LOCK_PATIENCE);
            lock.unlock().unwrap();
        }
        lock.try_lock_shared().unwrap();
        std::thread::scope(|scope| {
            let starting = scope.spawn(|| Segment::create(&path, 8_192));
            drop(lock);
            starting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_directory_that_others_may_write_in_is_refused() {
        let scratch = scratch();
        let open = scratch.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            own_directory(Readers::Owner, &open)
                .unwrap_err()
                .to_string(),
            "can be written by others"
        );
        own_directory(Readers::Owner, &scratch.path().join("new")).unwrap();
    }

    #[test]
    fn a_directory_is_made_for_its_readers_and_one_that_keeps_them_out_is_refused() {
        let scratch = scratch();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let [own, shared] = ["own", "shared"].map(|name| scratch.path().join(name));
        own_directory(Readers::Owner, &own).unwrap();
        own_directory(Readers::Group, &shared).unwrap();
        assert_eq!((mode(&own), mode(&shared)), (0o700, 0o750));
        let refused = own_directory(Readers::Group, &own).unwrap_err();
        assert_eq!(refused.to_string(), "can't be read by its group");
        assert_eq!(mode(&own), 0o700);
    }

    #[test]
    fn a_member_of_the_group_reads_a_segment_that_is_for_it_and_nobody_else_does() {
        const GROUP: u32 = 23_456;
        const SOMEBODY: u32 = 12_345;
        let scratch = scratch();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let path = scratch.path().join("gateway-1.seg");
        // Only root can be two users.
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(scratch.path(), None, Some(GROUP)).unwrap();
            fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o2750)).unwrap();
        }
        let segment = Segment::create_for(Readers::Group, &path, 8_192).unwrap();
        segment.publish().unwrap();
        assert_eq!([mode(&path), mode(&lock_path(&path))], [0o640; 2]);
        if !is_root {
            return;
        }
        let reads = |group: u32, path: &Path| {
            let mut read = std::process::Command::new("cat");
            let done = read.arg(path).uid(SOMEBODY).gid(group).output().unwrap();
            done.stdout.starts_with(&MAGIC.to_ne_bytes())
        };
        assert!(reads(GROUP, &path));
        assert!(!reads(SOMEBODY, &path));
        drop(segment);
        let segment = Segment::create(&path, 8_192).unwrap();
        segment.publish().unwrap();
        assert!(!reads(GROUP, &path));
    }

    #[test]
    fn the_living_come_before_the_dead() {
        let scratch = scratch();
        let [old, new] = ["gateway-1.seg", "gateway-2.seg"].map(|name| scratch.path().join(name));
        let living = Segment::create(&old, 8_192).unwrap();
        living.publish().unwrap();
        let dead = Segment::create(&new, 8_192).unwrap();
        dead.publish().unwrap();
        drop(dead);
        assert_eq!(in_directory(scratch.path()), [old.clone(), new]);
        tidy(scratch.path());
        assert_eq!(in_directory(scratch.path()), [old]);
    }

    #[test]
    fn what_gateways_left_that_died_while_they_started_is_tidied_and_nothing_else() {
        let scratch = scratch();
        let living = Segment::create(&scratch.path().join("gateway-1.seg"), 8_192).unwrap();
        let file = |name: &str| fs::write(scratch.path().join(name), "").unwrap();
        let names = || {
            let entries = fs::read_dir(scratch.path()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        let kept = [
            "gateway-.seg.lock",
            "gateway-1.x.tmp",
            "gateway-4.seg",
            "notes.seg.lock",
        ];
        kept.into_iter().for_each(file);
        let before = names();
        let left = [
            "gateway-2.2.tmp",
            "gateway-2.seg.lock",
            "gateway-3.seg.lock",
        ];
        left.into_iter().for_each(file);
        tidy(scratch.path());
        assert_eq!(
            names(),
            before,
            "a living one's draft and lock are among them"
        );
        drop(living);
    }
}
