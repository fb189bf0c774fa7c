//! Reads and writes assignments.

use crate::plan::Numbered;
use partition::assignment::{
    MAX_PARTS, NO_PARTITION, ONE_A_NODE, each_line, read_text, unreadable,
};
use partition::npy;
use record::error::{Fault, Report};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

fn open(path: &Path) -> Result<BufReader<File>, Report> {
    let file = File::open(path).map_err(unreadable(path))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

/// The partition of each node of a type, from a text or an array.
pub fn given(path: &Path) -> Result<Vec<u32>, Report> {
    let mut reader = open(path)?;
    let begin = reader.fill_buf().map_err(unreadable(path))?;
    if begin.starts_with(npy::MAGIC) {
        return array(path, reader);
    }
    let mut parts = Vec::new();
    read_text(path, reader, |part| parts.push(part))?;
    Ok(parts)
}

fn array(path: &Path, mut reader: impl Read) -> Result<Vec<u32>, Report> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(unreadable(path))?;
    let header = npy::header(&bytes).and_then(|header| {
        header.check(bytes.len() as u64)?;
        Ok(header)
    });
    let header = header.map_err(|problem| {
        Fault::data(path.display().to_string(), problem)
            .fix("save it as numpy.save(FILE, array.astype('int32')), one number a node")
    })?;
    let numbers = bytes[header.at..].chunks_exact(header.width);
    let parts = (1..).zip(numbers).map(|(number, bytes)| {
        let part = npy::number(bytes).filter(|part| *part < MAX_PARTS);
        part.ok_or_else(|| {
            Fault::data(format!("{}:{number}", path.display()), NO_PARTITION)
                .fix(ONE_A_NODE)
                .report()
        })
    });
    parts.collect()
}

/// The partitions that ParMETIS has found for so many nodes.
pub fn numbered(path: &Path, nodes: usize) -> Result<Vec<u32>, Report> {
    const FIX: &str = "give what pm_dglpart has written for this graph: NAME_part.N";
    let mut numbered = Numbered::new(nodes);
    each_line(path, open(path)?, |line| numbered.take(line), FIX)?;
    let parts = numbered.parts();
    Ok(parts.map_err(|problem| Fault::data(path.display().to_string(), problem).fix(FIX))?)
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
        fs::create_dir_all(folder).map_err(unreadable(folder))?;
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
        written.map_err(unreadable(&self.folder.join(name)))
    }

    /// Names all files, in the order in which they were written.
    pub fn name_all(mut self) -> Result<(), Report> {
        self.made.clear();
        for name in &self.names {
            let path = self.folder.join(name);
            fs::rename(self.partial(name), &path).map_err(unreadable(&path))?;
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
