//! Reads and writes assignments.

use crate::npy;
use crate::plan::Numbered;
use chunks::assignment::of_line;
use record::error::{Fault, Report};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The largest header; that of an array with one axis is shorter.
const HEAD: usize = 1 << 12;

fn failed(path: &Path) -> impl Fn(io::Error) -> Report {
    move |error| {
        let fault = Fault::unreachable(path.display().to_string(), error.to_string());
        fault
            .fix("correct the path, or make it accessible")
            .report()
    }
}

/// The text of the metadata.
pub fn read(path: &Path) -> Result<Vec<u8>, Report> {
    fs::read(path).map_err(failed(path))
}

/// The partition of each node of a type, from a text or an array.
pub fn given(path: &Path) -> Result<Vec<u32>, Report> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed(path))?);
    let is_array = reader
        .fill_buf()
        .map_err(failed(path))?
        .starts_with(npy::MAGIC);
    match is_array {
        true => array(path, reader),
        false => text(path, reader),
    }
}

fn no_partition(path: &Path, nth: usize) -> Report {
    let place = format!("{}:{nth}", path.display());
    let fault = Fault::data(place, "is not a number of a partition");
    fault.fix("give a number for each node, from 0 on").report()
}

fn text(path: &Path, mut reader: impl BufRead) -> Result<Vec<u32>, Report> {
    let (mut parts, mut line) = (Vec::new(), Vec::new());
    while reader.read_until(b'\n', &mut line).map_err(failed(path))? > 0 {
        parts.push(of_line(&line).ok_or_else(|| no_partition(path, parts.len() + 1))?);
        line.clear();
    }
    Ok(parts)
}

fn array(path: &Path, mut reader: impl Read) -> Result<Vec<u32>, Report> {
    let mut head = Vec::new();
    reader
        .by_ref()
        .take(HEAD as u64)
        .read_to_end(&mut head)
        .map_err(failed(path))?;
    let wrong = |problem: String| {
        let fault = Fault::data(path.display().to_string(), problem);
        fault
            .fix("save it as numpy.save(FILE, array.astype('int32')), one number a node")
            .report()
    };
    let header = npy::header(&head).map_err(wrong)?;
    let mut body = head.split_off(header.at);
    reader.read_to_end(&mut body).map_err(failed(path))?;
    if body.len() as u64 != header.count.saturating_mul(header.width as u64) {
        return Err(wrong(format!(
            "has {} bytes for {} numbers",
            body.len(),
            header.count
        )));
    }
    let numbers = body.chunks_exact(header.width).map(npy::number);
    let parts: Option<Vec<u32>> = numbers.clone().collect();
    let nth = || numbers.take_while(Option::is_some).count() + 1;
    parts.ok_or_else(|| no_partition(path, nth()))
}

/// The partitions that ParMETIS has found for the nodes.
pub fn numbered(path: &Path, mut nodes: Numbered) -> Result<Vec<u32>, Report> {
    const FIX: &str = "give what pm_dglpart has written for this graph: NAME_part.N";
    let file = File::open(path).map_err(failed(path))?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (mut line, mut nth) = (Vec::new(), 0u64);
    while reader.read_until(b'\n', &mut line).map_err(failed(path))? > 0 {
        nth += 1;
        nodes.take(&line).map_err(|problem| {
            Fault::data(format!("{}:{nth}", path.display()), problem).fix(FIX)
        })?;
        line.clear();
    }
    let whole = nodes.parts();
    Ok(whole.map_err(|problem| Fault::data(path.display().to_string(), problem).fix(FIX))?)
}

/// Files that get their names when all of them are complete; otherwise nothing stays.
pub struct Files {
    folder: PathBuf,
    /// The folders that were made for them, the innermost first.
    made: Vec<PathBuf>,
    names: Vec<String>,
}

impl Files {
    /// Makes the folder.
    pub fn begin(folder: &Path) -> Result<Files, Report> {
        let missing = folder.ancestors().take_while(|folder| !folder.exists());
        let files = Files {
            folder: folder.to_owned(),
            made: missing.map(Path::to_owned).collect(),
            names: Vec::new(),
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        Ok(files)
    }

    fn partial(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.partial"))
    }

    /// Writes a file, which has no name yet.
    pub fn write(
        &mut self,
        name: &str,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Report> {
        self.names.push(name.to_owned());
        let written = File::create(self.partial(name)).and_then(|file| {
            let mut writer = BufWriter::with_capacity(1 << 20, file);
            content(&mut writer)?;
            writer
                .into_inner()
                .map_err(io::IntoInnerError::into_error)?
                .sync_all()
        });
        written.map_err(failed(&self.folder.join(name)))
    }

    /// Names all files, in the order in which they were written.
    pub fn name_all(mut self) -> Result<(), Report> {
        self.made.clear();
        for name in &self.names {
            let path = self.folder.join(name);
            fs::rename(self.partial(name), &path).map_err(failed(&path))?;
        }
        self.names.clear();
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // an incomplete file is useless
        for name in &self.names {
            let _ = fs::remove_file(self.partial(name));
        }
        for folder in &self.made {
            let _ = fs::remove_dir(folder);
        }
    }
}
