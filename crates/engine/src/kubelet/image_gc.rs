//! Image garbage collection: chooses the unused images to delete. Upstream: `pkg/kubelet/images/image_gc_manager.go`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

/// When image garbage collection deletes images: its thresholds, and the minimum age of an image. Upstream:
/// `ImageGCPolicy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageGcPolicy {
    /// High threshold: disk usage in percent from which garbage collection deletes images. 100 turns garbage collection
    /// off.
    pub high: u8,
    /// Low threshold: disk usage in percent at which garbage collection stops deleting images.
    pub low: u8,
    /// Minimum age of an image that may be deleted, counted from when the node first saw the image.
    pub age_min: Duration,
}

/// Size and usage of the image filesystem, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageFilesystem {
    /// Size of the image filesystem in bytes.
    pub bytes: i64,
    /// Number of bytes of the image filesystem in use.
    pub used: i64,
}

/// An image on the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// ID of the image in the runtime.
    pub id: Text,
    /// Size of the image in bytes.
    pub bytes: i64,
    /// Whether the image was pulled from a registry. An image that a user imported is kept, because it could not be
    /// pulled again.
    pub is_from_registry: bool,
    /// Whether the runtime has pinned the image because it needs it, such as the sandbox image. A pinned image is kept.
    pub is_pinned: bool,
}

/// Image garbage collection: remembers when the node first saw each image and when a container last used it, and
/// chooses the images to delete.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImageGc {
    /// When each image was first seen and last used, by image ID.
    records: BTreeMap<Text, ImageRecord>,
}

/// When the node first saw an image, and when a container last used it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ImageRecord {
    first_seen: Time,
    last_used: Option<Time>,
}

impl ImageGc {
    /// Records which images the node has and which of them are used now, and forgets images that the node no longer
    /// has. `used` are the IDs of the images that a container uses, whether the container runs or not.
    pub fn observe(&mut self, images: &[Image], used: &BTreeSet<Text>, now: Time) {
        self.records.retain(|id, _| images.iter().any(|it| it.id == *id));
        for image in images {
            let known = self
                .records
                .entry(image.id.clone())
                .or_insert(ImageRecord { first_seen: now, last_used: None });
            if used.contains(&image.id) {
                known.last_used = Some(now);
            }
        }
    }

    /// Returns the IDs of the images to delete now.
    ///
    /// Rule: if the disk usage has reached the high threshold, the least recently used images are deleted until the
    /// usage is at most the low threshold. Images that a container uses are kept, and so are recent, pinned and
    /// imported images. Upstream: `GarbageCollect`.
    pub fn images_to_delete(
        &self,
        images: &[Image],
        used: &BTreeSet<Text>,
        disk: ImageFilesystem,
        limits: ImageGcPolicy,
        now: Time,
    ) -> Vec<Text> {
        let share = |percent: u8| i128::from(disk.bytes) * i128::from(percent) / 100;
        if i128::from(disk.used) < share(limits.high) || 100 <= limits.high {
            return Vec::new();
        }
        let mut to_free = i128::from(disk.used) - share(limits.low);
        let mut deleted = Vec::new();
        for (id, bytes) in self.unused_images(images, used, limits.age_min, now) {
            if to_free <= 0 {
                break;
            }
            to_free -= i128::from(bytes);
            deleted.push(id);
        }
        deleted
    }

    /// Returns IDs and sizes in bytes of all images that may be deleted, least recently used first. Images that the
    /// node first saw less than `age_min` ago are left out. Under disk pressure, the caller passes zero as `age_min`,
    /// so that recent images are included.
    pub fn unused_images(
        &self,
        images: &[Image],
        used: &BTreeSet<Text>,
        age_min: Duration,
        now: Time,
    ) -> Vec<(Text, i64)> {
        let is_deletable = |it: &&Image| {
            let age = self.records.get(&it.id).map_or(Duration::ZERO, |known| now.since(known.first_seen));
            it.is_from_registry && !it.is_pinned && !used.contains(&it.id) && age_min <= age
        };
        let mut all: Vec<&Image> = images.iter().filter(is_deletable).collect();
        all.sort_by_key(|it| self.records.get(&it.id).map(|known| (known.last_used, known.first_seen)));
        all.into_iter().map(|it| (it.id.clone(), it.bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use expect_test::expect;

    use super::*;

    fn image(id: &str, bytes: i64) -> Image {
        Image { id: id.into(), bytes, is_from_registry: true, is_pinned: false }
    }

    #[test]
    fn the_least_recently_used_images_are_deleted_down_to_the_low_threshold() {
        let images = [
            image("never-used", 10),
            image("used-long-ago", 10),
            image("used-lately", 10),
            image("in-use", 10),
            Image { is_from_registry: false, ..image("by-hand", 10) },
            Image { is_pinned: true, ..image("pinned", 10) },
            image("new", 10),
        ];
        let used = |of: &[&str]| of.iter().map(|it| Text::from(*it)).collect::<BTreeSet<_>>();
        let mut garbage = ImageGc::default();
        garbage.observe(&images[..6], &used(&["used-long-ago", "used-lately", "in-use"]), Time::from_secs(0));
        garbage.observe(&images[..6], &used(&["used-lately", "in-use"]), Time::from_secs(60));
        garbage.observe(&images, &used(&["in-use"]), Time::from_secs(100));
        let limits = ImageGcPolicy { high: 85, low: 80, age_min: Duration::from_secs(120) };
        let mut report = String::new();
        for (now, used_percent) in [(130, 84), (110, 85), (130, 85), (130, 91), (130, 100), (300, 100)] {
            let disk = ImageFilesystem { bytes: 100, used: used_percent };
            let deleted =
                garbage.images_to_delete(&images, &used(&["in-use"]), disk, limits, Time::from_secs(now));
            report += &format!("at {now} with {used_percent} %: {}\n", deleted.join(" "));
        }
        let off = ImageGcPolicy { high: 100, ..limits };
        let full = ImageFilesystem { bytes: 100, used: 100 };
        let deleted = garbage.images_to_delete(&images, &used(&[]), full, off, Time::from_secs(300));
        report += &format!("turned off: {}\n", deleted.join(" "));
        expect![[r#"
            at 130 with 84 %: 
            at 110 with 85 %: 
            at 130 with 85 %: never-used
            at 130 with 91 %: never-used used-long-ago
            at 130 with 100 %: never-used used-long-ago
            at 300 with 100 %: never-used new
            turned off: 
        "#]]
        .assert_eq(&report);
    }
}
