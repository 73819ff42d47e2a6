package testhost

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// overlaid are the directories with the files of the real host, that the tests may change for themselves. empty are the
// directories without files. An overlay cannot hold the writable layers of containers.
var (
	overlaid = []string{"/etc", "/opt", "/var/lib"}
	empty    = []string{
		"/run", "/dev/shm", "/var/lib/bulkhead", "/var/lib/cni", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker",
	}
)

// Name is the host name.
const Name = "testhost"

// prepare mounts the host's file systems and sets up its name and loopback.
func prepare() error {
	groups, err := hierarchies()
	if err != nil {
		return err
	}
	links, err := groupLinks()
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	for _, m := range []struct{ kind, dir string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}} {
		if err := mount(m.kind, m.dir, ""); err != nil {
			return err
		}
	}
	if err := mountGroups(groups, links); err != nil {
		return err
	}
	for _, dir := range overlaid {
		changes := filepath.Join("/run/overlays", dir)
		for _, d := range []string{changes + "/upper", changes + "/work"} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		if err := mount("overlay", dir, "lowerdir="+dir+",upperdir="+changes+"/upper,workdir="+changes+"/work"); err != nil {
			return err
		}
	}
	for _, dir := range empty {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := mount("tmpfs", dir, "mode=0755"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/run/lock", 0o755); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(Name)); err != nil {
		return fmt.Errorf("set the host's name: %w", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("bring the loopback up: %w: %s", err, out)
	}
	return nil
}

func mount(kind, dir, options string) error {
	if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", kind, dir, err)
	}
	return nil
}

// top is the directory of the hierarchies.
const top = "/sys/fs/cgroup"

// groupLinks returns the links from controllers to their hierarchies, by name.
func groupLinks() (map[string]string, error) {
	entries, err := os.ReadDir(top)
	if err != nil {
		return nil, err
	}
	links := map[string]string{}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		if links[e.Name()], err = os.Readlink(filepath.Join(top, e.Name())); err != nil {
			return nil, err
		}
	}
	return links, nil
}

// mountGroups mounts the hierarchies of the real host at the same places. The roots of the new mounts are the groups of
// this host.
func mountGroups(groups []*mountinfo.Info, links map[string]string) error {
	if !slices.ContainsFunc(groups, func(m *mountinfo.Info) bool { return m.Mountpoint == top }) {
		if err := mount("tmpfs", top, "mode=0755"); err != nil {
			return err
		}
	}
	for _, m := range groups {
		if err := os.MkdirAll(m.Mountpoint, 0o755); err != nil {
			return err
		}
		var options []string
		for option := range strings.SplitSeq(m.VFSOptions, ",") {
			// The others are settings of the real host's mount.
			if m.FSType == "cgroup" && option != "rw" && option != "ro" && !strings.HasPrefix(option, "release_agent=") {
				options = append(options, option)
			}
		}
		if err := mount(m.FSType, m.Mountpoint, strings.Join(options, ",")); err != nil {
			return err
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(top, name)); err != nil {
			return err
		}
	}
	return nil
}
