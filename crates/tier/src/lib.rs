//! The tier: segments copied out to volumes, given up on devices, and brought back.
//!
//! Each part is a struct with its own state and what is below it: the table of volumes (`media.rs`), recalls as those see
//! them who drive them (`recalls.rs`), how segments are used (`heat.rs`), copying out (`upload.rs`), releasing and staging
//! (`stage.rs`), looking through volumes (`remnants.rs`), repacking (`repack.rs`), copies of metadata (`metadata.rs`). The
//! engine knows nothing of them: reads of what is released go through its volumes (the crate `recall`).
//!
//! The work goes on in steps, by whoever calls `Tier::step`. Read next: `docs/design/tiering.md`.

mod costs;
mod heat;
mod lanes;
mod media;
mod metadata;
mod orders;
mod recalls;
mod remnants;
mod repack;
mod retire;
mod stage;
mod upload;

use std::sync::Arc;

use stere_log::Io;

use stere_engine::{Engine, Error};
use stere_recall::Volumes;

pub use costs::Costs;
pub use heat::{Heat, Member, Members};
pub use media::{Media, VolumeStatus};
use metadata::Copies;
pub use metadata::MetadataCopier;
pub use orders::{Candidate, put_in_order};
pub use recalls::Recalls;
pub use remnants::{Sweeper, Swept};
pub use repack::{Belonging, Repacked, Repacker};
pub use stage::{Released, Stager, TierFile};
pub use stere_format::{ReleaseOrder, SegmentHeat, TierMarks, TierPolicy, VolumePrices};
pub use upload::{Describe, TertiaryProgress, Uploader};

/// What a pool does with its volumes.
pub struct Tier {
    engine: Arc<Engine>,
    volumes: Arc<Volumes>,
    pub media: Arc<Media>,
    pub recalls: Recalls,
    pub heat: Heat,
    pub stager: Arc<Stager>,
    pub uploader: Arc<Uploader>,
    pub sweeper: Arc<Sweeper>,
    pub repacker: Repacker,
    pub copier: MetadataCopier,
}

impl Tier {
    /// From below upwards.
    pub fn new(engine: &Arc<Engine>) -> Tier {
        let (volumes, copies) = (engine.volumes().clone(), Arc::<Copies>::default());
        let media = Arc::new(Media::new(engine, &copies));
        let recalls = Recalls::new(engine);
        let heat = Heat::new(engine, &media);
        let stager = Arc::new(Stager::new(engine, &media));
        let uploader = Arc::new(Uploader::new(engine));
        let sweeper = Arc::new(Sweeper::new(engine));
        let repacker = Repacker::new(engine, &media, &stager, &uploader, &sweeper);
        let copier = MetadataCopier::new(engine, &uploader, &copies);
        let engine = engine.clone();
        Tier { engine, volumes, media, recalls, heat, stager, uploader, sweeper, repacker, copier }
    }

    /// Reads what the pool knows of its volumes.
    pub fn load(&self) -> Result<(), Error> {
        if self.media.load()? {
            self.recalls.load_successors()?;
        }
        self.media.load_bad_objects();
        if let Err(error) = self.heat.load() {
            // Nothing depends on it.
            tracing::warn!(%error, "how archived segments were used is not known");
        }
        Ok(())
    }

    /// A piece of the work that volumes make: brings one segment back that is wanted, or copies one out, or deletes what nobody needs.
    /// With `ends` segments that are not full are ended, so that all that was archived gets to its volumes.
    /// `describe` says in writing what is known of the inodes with content in a segment; that is stored beside it, for those who have
    /// nothing but volumes.
    pub fn step(&self, ends: bool, describe: &Describe<'_>) -> Result<TertiaryProgress, Error> {
        self.engine.check_writable()?;
        let mut progress = TertiaryProgress::default();
        let Some(_alone) = self.volumes.work.try_lock() else { return Ok(progress) };
        self.recalls.keep_successors()?;
        if self.stager.stage_wanted(&mut progress)? || self.volumes.table.read().is_empty() {
            return Ok(progress);
        }
        self.copier.copy_metadata(&mut progress);
        if ends && self.engine.log().end_segments(&|segment| !segment.tertiary().is_none()) {
            // Their rows arrive, and are durable, before they are copied.
            self.engine.commit(Io::BLOCKING)?;
        }
        self.stager.release_unreadable()?;
        self.media.pass_on()?;
        progress.is_busy |= self.media.finish_retirements()?;
        {
            let _no_sweep = self.volumes.uploads.read();
            if self.uploader.upload_one(&mut progress, describe)? {
                return Ok(progress);
            }
        }
        self.sweeper.delete_garbage(&mut progress);
        Ok(progress)
    }

    /// Copies one segment out that nobody else has in hand, beside whoever does the same and `step`.
    pub fn upload_step(&self, describe: &Describe<'_>) -> Result<TertiaryProgress, Error> {
        self.engine.check_writable()?;
        let mut progress = TertiaryProgress::default();
        let _no_sweep = self.volumes.uploads.read();
        self.uploader.upload_one(&mut progress, describe)?;
        Ok(progress)
    }

    /// Tries again what could not be copied out.
    pub fn retry_uploads(&self) {
        self.volumes.stuck.lock().clear();
        self.repacker.forget_unpackable();
    }
}
