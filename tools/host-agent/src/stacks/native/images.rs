//! The programs and libraries that a process runs, as files: which function is where, and how to
//! get from it to its caller. Only what is asked for is read of them: libraries of half a gigabyte
//! are among them.

use crate::procfs::Mapping;
use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, ParsedEhFrameHdr, UnwindContext,
    UnwindSection, UnwindTableRow,
};
use object::elf::{FileHeader64, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, Sym};
use object::read::{Object, ObjectSection, ReadCache};
use object::{Endianness, SymbolIndex};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Tables of so many bytes belong to no library that anybody has.
const MAX_TABLE: u64 = 256 << 20;

type Bytes<'f> = EndianSlice<'f, NativeEndian>;
type Row = UnwindTableRow<usize>;
type Segment = <FileHeader64<Endianness> as FileHeader>::ProgramHeader;

/// The files whose code a process has mapped.
pub struct Files<'m> {
    pid: i32,
    /// The parts of memory that hold code, and which of the files each is of.
    mappings: Vec<(&'m Mapping, usize)>,
    /// Of each path once.
    opened: Vec<(&'m Path, OnceCell<Option<ReadCache<File>>>)>,
}

impl<'m> Files<'m> {
    /// None is opened yet.
    pub fn of(pid: i32, all: &'m [Mapping]) -> Files<'m> {
        let mut opened: Vec<(&Path, OnceCell<_>)> = Vec::new();
        let mut file_of = |path| {
            let at = opened.iter().position(|(other, _)| *other == path);
            at.unwrap_or_else(|| {
                opened.push((path, OnceCell::new()));
                opened.len() - 1
            })
        };
        let code = all.iter().filter(|one| one.is_code && !one.is_deleted);
        let mappings = code.map(|one| (one, file_of(&*one.path))).collect();
        Files {
            pid,
            mappings,
            opened,
        }
    }

    fn cache(&self, at: usize) -> Option<&ReadCache<File>> {
        let (path, cell) = self.opened.get(at)?;
        // as the process sees it, in a container say; another file may have the name now
        let open = || {
            let root = format!("/proc/{}/root", self.pid);
            let file = File::open(Path::new(&root).join(path.strip_prefix("/").ok()?)).ok()?;
            Some(ReadCache::new(file))
        };
        cell.get_or_init(open).as_ref()
    }
}

/// The same, read as far as was needed.
pub struct Images<'f> {
    files: &'f Files<'f>,
    images: Vec<OnceCell<Option<Image<'f>>>>,
    names: RefCell<HashMap<u64, String>>,
}

struct Image<'f> {
    elf: ElfFile64<'f, Endianness, &'f ReadCache<File>>,
    bases: BaseAddresses,
    header: ParsedEhFrameHdr<Bytes<'f>>,
    frames: EhFrame<Bytes<'f>>,
}

impl<'f> Images<'f> {
    pub fn of(files: &'f Files<'f>) -> Images<'f> {
        Images {
            files,
            images: files.opened.iter().map(|_| OnceCell::new()).collect(),
            names: RefCell::default(),
        }
    }

    /// The file of an address, and the offset of the address in it.
    fn find(&self, address: u64) -> Option<(usize, u64)> {
        let mut mappings = self.files.mappings.iter();
        let (mapping, at) = mappings.find(|(one, _)| one.range.contains(&address))?;
        Some((*at, address - mapping.range.start + mapping.offset))
    }

    fn image(&self, at: usize) -> Option<&Image<'f>> {
        let read = || Image::read(self.files.cache(at)?);
        self.images.get(at)?.get_or_init(read).as_ref()
    }

    /// How to get from a place to its caller.
    pub fn unwind_row(&self, address: u64) -> Option<Row> {
        let (at, offset) = self.find(address)?;
        let image = self.image(at)?;
        image.unwind_row(image.address(offset)?)
    }

    /// `function (file)`.
    pub fn name(&self, address: u64) -> String {
        let mut names = self.names.borrow_mut();
        let name = names
            .entry(address)
            .or_insert_with(|| self.find_name(address));
        name.clone()
    }

    fn find_name(&self, address: u64) -> String {
        let Some((at, offset)) = self.find(address) else {
            return "? (no file)".to_owned();
        };
        let file = self.files.opened[at].0.file_name();
        let file = file.unwrap_or_default().to_string_lossy();
        let Some((image, address)) = self
            .image(at)
            .and_then(|one| Some((one, one.address(offset)?)))
        else {
            return format!("? ({file})");
        };
        match image.function(address) {
            Some(function) => format!("{function} ({file})"),
            // as addr2line(1) takes it
            None => format!("? ({file}+{address:#x})"),
        }
    }
}

impl<'f> Image<'f> {
    fn read(file: &'f ReadCache<File>) -> Option<Image<'f>> {
        let elf = ElfFile64::parse(file).ok()?;
        let section = |name| {
            let section = elf.section_by_name(name)?;
            let is_small = section.size() <= MAX_TABLE;
            let data = is_small.then(|| section.data().ok())??;
            Some((section.address(), data))
        };
        let (header_address, header) = section(".eh_frame_hdr")?;
        let (address, frames) = section(".eh_frame")?;
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(header_address)
            .set_eh_frame(address);
        let header = EhFrameHdr::new(header, NativeEndian)
            .parse(&bases, 8)
            .ok()?;
        Some(Image {
            elf,
            bases,
            header,
            frames: EhFrame::new(frames, NativeEndian),
        })
    }

    /// The address that the file itself has for what lies at an offset of it.
    fn address(&self, offset: u64) -> Option<u64> {
        let endian = self.elf.endian();
        let holds = |segment: &&Segment| {
            let begin = segment.p_offset(endian);
            segment.p_type(endian) == object::elf::PT_LOAD
                && (begin..begin.saturating_add(segment.p_filesz(endian))).contains(&offset)
        };
        let segment = self.elf.elf_program_headers().iter().find(holds)?;
        (offset - segment.p_offset(endian)).checked_add(segment.p_vaddr(endian))
    }

    fn unwind_row(&self, address: u64) -> Option<Row> {
        let mut context = UnwindContext::new();
        let row = self.header.table()?.unwind_info_for_address(
            &self.frames,
            &self.bases,
            &mut context,
            address,
            EhFrame::cie_from_offset,
        );
        row.ok().cloned()
    }

    /// The function at an address, by what the file exports and by what it names for debuggers.
    fn function(&self, address: u64) -> Option<String> {
        let endian = self.elf.endian();
        let tables = [
            self.elf.elf_dynamic_symbol_table(),
            self.elf.elf_symbol_table(),
        ];
        tables.into_iter().find_map(|table| {
            let is_it = |(_, symbol): &(SymbolIndex, &object::elf::Sym64<Endianness>)| {
                let begin = symbol.st_value(endian);
                let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC);
                is_function
                    && (begin..begin.saturating_add(symbol.st_size(endian))).contains(&address)
            };
            let (_, symbol) = table.enumerate().find(is_it)?;
            let name = table.symbol_name(endian, symbol).ok()?;
            Some(String::from_utf8_lossy(name).into_owned())
        })
    }
}
