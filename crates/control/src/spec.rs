//! What is written for a device on a command line: `PATH[,key=value]...`.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stere_pool::DeviceClass;

/// A device as it was named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSpec {
    pub path: PathBuf,
    /// A file of this size is made.
    pub size_bytes: Option<u64>,
    #[serde(with = "class_word")]
    pub class: Option<DeviceClass>,
    pub tags: Vec<String>,
    pub host: String,
    pub shelf: String,
    pub name: String,
    /// Of a medium: copies of the pool's metadata go there.
    pub takes_metadata: bool,
    /// Of a medium: what it costs.
    #[serde(default)]
    pub prices: crate::tier::costs::Change,
}

impl FromStr for DeviceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceSpec, String> {
        let mut parts = text.split(',');
        let path = parts.next().unwrap_or_default();
        if path.is_empty() {
            return Err("a device needs a path: PATH[,key=value]...".into());
        }
        let is_volume = stere_machine::places::is_place(path);
        let is_node = stere_nbd::is_address(path);
        let path = stere_machine::places::whole_place(path).map_err(|error| error.to_string())?;
        let mut spec = DeviceSpec {
            path: PathBuf::from(&path),
            size_bytes: None,
            class: None,
            tags: Vec::new(),
            host: String::new(),
            shelf: String::new(),
            name: String::new(),
            takes_metadata: true,
            prices: crate::tier::costs::Change::default(),
        };
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                format!("'{part}' is not key=value; the keys of a device are size, class, tag, host, shelf and name")
            })?;
            match key {
                "size" => spec.size_bytes = Some(stere_machine::size::parse(value)?),
                "class" => spec.class = Some(class(value)?),
                "tag" => spec.tags.push(value.into()),
                "host" => spec.host = value.into(),
                "shelf" => spec.shelf = value.into(),
                key if stere_tertiary::keys_of(&path).contains(&key) || stere_nbd::keys(&path).contains(&key) => {
                    let place = format!("{},{key}={value}", spec.path.display());
                    spec.path = PathBuf::from(place);
                }
                "drive" | "set" | "cartridges" | "block" if stere_robot::is_place(&path) => {
                    let place = format!("{},{key}={value}", spec.path.display());
                    spec.path = PathBuf::from(place);
                }
                "name" => spec.name = value.into(),
                "price_requests" | "price_out" | "price_month" if is_volume => {
                    spec.prices.set(key.trim_start_matches("price_"), value)?;
                }
                "metadata" if is_volume => {
                    spec.takes_metadata = match value {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(format!("metadata is yes or no, not '{value}'")),
                    }
                }
                _ => {
                    return Err(format!(
                        "a device has no key '{key}'; the keys are size, class, tag, host, shelf and name"
                    ));
                }
            }
        }
        if is_node {
            stere_nbd::Address::parse(&spec.path.display().to_string()).map_err(|error| error.to_string())?;
            if spec.size_bytes.is_some() && !stere_nbd::is_stere(&path) {
                return Err("a device on another machine has the size that its server gives it; leave out size=".into());
            }
        }
        if is_volume && (spec.size_bytes.is_some() || !spec.host.is_empty() || !spec.shelf.is_empty()) {
            return Err("a medium has no size, host or shelf; its keys are class, name, metadata, price_requests, price_out and price_month".into());
        }
        let is_slow = matches!(spec.class, Some(DeviceClass::Object | DeviceClass::Media));
        if is_volume && spec.class.is_some() && !is_slow {
            return Err("a medium is of class object or media".into());
        }
        Ok(spec)
    }
}

/// A class as its word, on the way to the daemon.
mod class_word {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use stere_pool::DeviceClass;

    pub fn serialize<S: Serializer>(class: &Option<DeviceClass>, to: S) -> Result<S::Ok, S::Error> {
        class.map(DeviceClass::word).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<DeviceClass>, D::Error> {
        let word = Option::<String>::deserialize(from)?;
        Ok(word.as_deref().and_then(DeviceClass::from_word))
    }
}

pub fn class(word: &str) -> Result<DeviceClass, String> {
    match DeviceClass::from_word(word) {
        Some(DeviceClass::Unknown) | None => {
            Err(format!("'{word}' is not a class of devices; the classes are ssd, hdd, object and media"))
        }
        Some(class) => Ok(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read() {
        let spec: DeviceSpec =
            "/x/a.img,size=6G,class=hdd,tag=quiet,tag=old,host=shed,shelf=2,name=left".parse().unwrap();
        assert_eq!(spec.path, PathBuf::from("/x/a.img"));
        assert_eq!(spec.size_bytes, Some(6 << 30));
        assert_eq!(spec.class, Some(DeviceClass::Hdd));
        assert_eq!(spec.tags, ["quiet", "old"]);
        assert_eq!((spec.host.as_str(), spec.shelf.as_str(), spec.name.as_str()), ("shed", "2", "left"));
        assert_eq!("b".parse::<DeviceSpec>().unwrap().path, PathBuf::from("b"));
    }

    #[test]
    fn keys_of_a_place_stay_with_it() {
        let spec: DeviceSpec = "davs://nas/cold,credentials=/k,name=nas,ca=/c".parse().unwrap();
        assert_eq!(spec.path, PathBuf::from("davs://nas/cold,credentials=/k,ca=/c"));
        assert_eq!(spec.name, "nas");
        let spec: DeviceSpec = "sftp://me@shed/cold,known_hosts=/h,identity=/k,metadata=no".parse().unwrap();
        assert_eq!(spec.path, PathBuf::from("sftp://me@shed/cold,known_hosts=/h,identity=/k"));
        assert!(!spec.takes_metadata);
    }

    #[test]
    fn devices_on_other_machines_are_read() {
        let spec: DeviceSpec = "nbd://n1:10809/disk0,host=n1,name=one".parse().unwrap();
        assert_eq!(spec.path, PathBuf::from("nbd://n1:10809/disk0"));
        assert_eq!((spec.host.as_str(), spec.name.as_str()), ("n1", "one"));
        let spec: DeviceSpec = "nbds://n1/disk0,ca=/c,name=one,certificate=/a,key=/b".parse().unwrap();
        assert_eq!(spec.path, PathBuf::from("nbds://n1/disk0,ca=/c,certificate=/a,key=/b"));
        let spec: DeviceSpec = "stere://n1:7000/disk0,size=1G,host=shed,name=one".parse().unwrap();
        assert_eq!((spec.path, spec.size_bytes), (PathBuf::from("stere://n1:7000/disk0"), Some(1 << 30)));
        for text in [
            "stere://n1/../x,size=1G",
            "stere://n1",
            "nbd://n1/x,size=1G",
            "nbd://n1/x,ca=/c",
            "nbd://:1/x",
            "nbds://n1/x",
        ] {
            assert!(text.parse::<DeviceSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn wrong_devices_are_refused_with_the_right_keys() {
        for text in [
            "",
            ",size=1G",
            "a,size",
            "a,size=x",
            "a,class=tape",
            "a,colour=red",
            "dir:/x,size=1G",
            "dir:/x,class=ssd",
            "a,endpoint=x",
            "dav://x/y,endpoint=x",
            "dav://x/y,size=1G",
            "sftp://x/y,credentials=/x",
        ] {
            assert!(text.parse::<DeviceSpec>().is_err(), "{text}");
        }
        assert!("a,colour=red".parse::<DeviceSpec>().unwrap_err().contains("host"));
    }
}
