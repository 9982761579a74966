//! Which images a node no longer keeps. Upstream: `pkg/kubelet/images/image_gc_manager.go`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

/// When a node has too little room for images, and when an image may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// When more than this is taken of the disk, in percent, images go …
    pub high: u8,
    /// … until no more than this is.
    pub low: u8,
    /// One that was seen for less long does not.
    pub age_min: Duration,
}

/// The disk that images are on, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    pub bytes: i64,
    pub used: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    pub id: Text,
    pub bytes: i64,
    /// Whether a registry has it: what was brought by hand nobody could bring back.
    pub comes_from_registry: bool,
    /// The runtime itself needs it.
    pub is_pinned: bool,
}

/// Since when images are here, and when they were last used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Garbage {
    known: BTreeMap<Text, Known>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    first_seen: Time,
    last_used: Option<Time>,
}

impl Garbage {
    /// Takes in which images there are, and which of them a container uses, running or not.
    pub fn see(&mut self, images: &[Image], used: &BTreeSet<Text>, now: Time) {
        self.known.retain(|id, _| images.iter().any(|it| it.id == *id));
        for image in images {
            let known =
                self.known.entry(image.id.clone()).or_insert(Known { first_seen: now, last_used: None });
            if used.contains(&image.id) {
                known.last_used = Some(now);
            }
        }
    }

    /// Rule: when too much of the disk is taken, the images go that were not used for longest, until enough is free. One
    /// that a container uses stays, and so does one that has just come, that the runtime needs, or that no registry has.
    pub fn for_room(
        &self,
        images: &[Image],
        used: &BTreeSet<Text>,
        disk: Disk,
        limits: Limits,
        now: Time,
    ) -> Vec<Text> {
        let share = |percent: u8| i128::from(disk.bytes) * i128::from(percent) / 100;
        if i128::from(disk.used) < share(limits.high) || 100 <= limits.high {
            return Vec::new();
        }
        let mut to_free = i128::from(disk.used) - share(limits.low);
        let mut gone = Vec::new();
        for (id, bytes) in self.unused(images, used, limits.age_min, now) {
            if to_free <= 0 {
                break;
            }
            to_free -= i128::from(bytes);
            gone.push(id);
        }
        gone
    }

    /// All that could go, the one that was not used for longest first. A node that is short of disk takes no account of age.
    pub fn unused(
        &self,
        images: &[Image],
        used: &BTreeSet<Text>,
        age_min: Duration,
        now: Time,
    ) -> Vec<(Text, i64)> {
        let may_go = |it: &&Image| {
            let age = self.known.get(&it.id).map_or(Duration::ZERO, |known| now.since(known.first_seen));
            it.comes_from_registry && !it.is_pinned && !used.contains(&it.id) && age_min <= age
        };
        let mut all: Vec<&Image> = images.iter().filter(may_go).collect();
        all.sort_by_key(|it| self.known.get(&it.id).map(|known| (known.last_used, known.first_seen)));
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
        Image { id: id.into(), bytes, comes_from_registry: true, is_pinned: false }
    }

    #[test]
    fn the_longest_unused_go_until_there_is_room() {
        let images = [
            image("never-used", 10),
            image("used-long-ago", 10),
            image("used-lately", 10),
            image("in-use", 10),
            Image { comes_from_registry: false, ..image("by-hand", 10) },
            Image { is_pinned: true, ..image("pinned", 10) },
            image("new", 10),
        ];
        let used = |of: &[&str]| of.iter().map(|it| Text::from(*it)).collect::<BTreeSet<_>>();
        let mut garbage = Garbage::default();
        garbage.see(&images[..6], &used(&["used-long-ago", "used-lately", "in-use"]), Time::from_secs(0));
        garbage.see(&images[..6], &used(&["used-lately", "in-use"]), Time::from_secs(60));
        garbage.see(&images, &used(&["in-use"]), Time::from_secs(100));
        let limits = Limits { high: 85, low: 80, age_min: Duration::from_secs(120) };
        let mut said = String::new();
        for (now, taken) in [(130, 84), (110, 85), (130, 85), (130, 91), (130, 100), (300, 100)] {
            let disk = Disk { bytes: 100, used: taken };
            let gone = garbage.for_room(&images, &used(&["in-use"]), disk, limits, Time::from_secs(now));
            said += &format!("at {now} with {taken} %: {}\n", gone.join(" "));
        }
        let off = Limits { high: 100, ..limits };
        let full = Disk { bytes: 100, used: 100 };
        let gone = garbage.for_room(&images, &used(&[]), full, off, Time::from_secs(300));
        said += &format!("turned off: {}\n", gone.join(" "));
        expect![[r#"
            at 130 with 84 %: 
            at 110 with 85 %: 
            at 130 with 85 %: never-used
            at 130 with 91 %: never-used used-long-ago
            at 130 with 100 %: never-used used-long-ago
            at 300 with 100 %: never-used new
            turned off: 
        "#]]
        .assert_eq(&said);
    }
}
