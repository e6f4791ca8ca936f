use super::*;

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

#[test]
fn a_machine_is_read_from_its_files() {
    let dir = tree(&[
        ("etc/machine-id", "abc\n"),
        ("sys/class/dmi/id/product_uuid", "d-e-f\n"),
        ("proc/sys/kernel/random/boot_id", "b-1\n"),
        ("proc/sys/kernel/osrelease", "6.1.0-9-amd64\n"),
        ("etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
        ("sys/devices/system/cpu/online", "0-2,5\n"),
        ("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\nSwapTotal: 2 kB\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
        ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
    ]);
    let facts = MachineFacts::read(dir.path());
    assert_eq!(
        facts,
        MachineFacts {
            machine_id: "abc".into(),
            system_uuid: "d-e-f".into(),
            boot_id: "b-1".into(),
            kernel: "6.1.0-9-amd64".into(),
            os_image: "Debian GNU/Linux 12 (bookworm)".into(),
            cpus: 4,
            memory: 1024 * 1024,
            swap: 2048,
            hugepages: vec![HugePages { page: 2 << 20, count: 3 }, HugePages { page: 1 << 30, count: 0 }],
        }
    );
}

#[test]
fn an_empty_tree_has_fallbacks() {
    let dir = tree(&[("var/lib/dbus/machine-id", "m"), ("proc/cpuinfo", "processor : 0\nprocessor : 1\n")]);
    let facts = MachineFacts::read(dir.path());
    assert_eq!((facts.machine_id.as_str(), facts.system_uuid.as_str()), ("m", "m"));
    assert_eq!((facts.cpus, facts.memory, facts.os_image.as_str()), (2, 0, "Unknown"));
}

#[test]
fn the_default_route_with_the_lowest_metric_wins() {
    let route = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
        wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
        eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        eth1\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    assert_eq!(default_interface(tree(&[("proc/net/route", route)]).path()).as_deref(), Some("eth0"));
    let zero = "00000000000000000000000000000000";
    let v6 = format!(
        "{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n\
         {zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth9\n"
    );
    assert_eq!(default_interface(tree(&[("proc/net/ipv6_route", &v6)]).path()).as_deref(), Some("eth9"));
    assert_eq!(default_interface(tree(&[]).path()), None);
}

#[test]
fn swap_areas_are_listed_without_the_header() {
    let text = "Filename\t\t\tType\t\tSize\n/dev/sda2 partition 100 0 -2\n";
    assert_eq!(swaps(tree(&[("proc/swaps", text)]).path()), [PathBuf::from("/dev/sda2")]);
    assert!(swaps(tree(&[("proc/swaps", "Filename\n")]).path()).is_empty());
}

#[test]
fn this_machine_has_loopback_and_size() {
    assert!(interface_addresses().unwrap().iter().any(|(_, address)| address.is_loopback()));
    assert!(filesystem_size(Path::new("/")).unwrap() > 0);
}

#[test]
fn broken_cpu_lists_are_not_believed() {
    for list in ["", "3-1", "a", "0-4294967295,1-4294967295"] {
        assert_eq!(count_ranges(list), None, "{list}");
    }
}
