package podconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// maxFile bounds the host's files that are copied, and a bundle's config.json.
const maxFile = 16 << 20

// shmSize is the size of a pod's /dev/shm, as in containerd's CRI plugin.
const shmSize = "65536k"

// Files are a pod's own files in a directory of the host. Containers of the pod get them as mounts, unless their bundles
// have mounts there already.
type Files struct{ dir string }

// places are the names of the files, by their places in a container.
var places = map[string]string{"/etc/hostname": "hostname", "/etc/hosts": "hosts", "/etc/resolv.conf": "resolv.conf"}

// shmPlace is the place of the shared memory.
const shmPlace = "/dev/shm"

// WriteFiles writes the pod's files into dir, which exists. The pod's shared memory is a tmpfs there, which Remove unmounts.
// The guest has its own one of the same size.
func (c Config) WriteFiles(dir string) (f Files, err error) {
	f = Files{dir}
	hostname := c.Hostname
	if hostname == "" {
		if hostname, err = os.Hostname(); err != nil {
			return f, fmt.Errorf("write the pod's files: %w", err)
		}
	}
	texts := map[string]string{"hostname": hostname + "\n"}
	if texts["hosts"], err = readHost("/etc/hosts"); err != nil {
		return f, err
	}
	if texts["resolv.conf"] = c.DNS.text(); c.DNS == nil {
		if texts["resolv.conf"], err = readHost("/etc/resolv.conf"); err != nil {
			return f, err
		}
	}
	for name, text := range texts {
		if err := atomicfile.Write(filepath.Join(dir, name), []byte(text), 0o644, atomicfile.Volatile); err != nil {
			return f, fmt.Errorf("write the pod's files: %w", err)
		}
	}
	shm := filepath.Join(dir, "shm")
	if err := os.Mkdir(shm, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return f, fmt.Errorf("write the pod's files: %w", err)
	}
	err = unix.Mount("shm", shm, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size="+shmSize)
	if err != nil {
		return f, fmt.Errorf("mount the pod's shared memory: %w", err)
	}
	return f, nil
}

// FilesIn returns the files that WriteFiles has written into dir.
func FilesIn(dir string) Files { return Files{dir} }

// Remove unmounts the shared memory. It is idempotent. Containerd removes the directory.
func (f Files) Remove() error {
	err := unix.Unmount(filepath.Join(f.dir, "shm"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount the pod's shared memory: %w", err)
	}
	return nil
}

// readHost reads a file of the host. A missing one is empty.
func readHost(path string) (string, error) {
	b, err := readBounded(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("read %s: must be at most %d bytes", path, maxFile)
	}
	return b, err
}

// text returns the content of resolv.conf.
func (d *DNS) text() string {
	if d == nil {
		return ""
	}
	var b strings.Builder
	if len(d.Searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(d.Searches, " "))
	}
	for _, server := range d.Servers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(d.Options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(d.Options, " "))
	}
	return b.String()
}

// AddTo adds mounts of the pod's files to a container's bundle. Every other setting stays the same.
func (f Files) AddTo(bundle string) error {
	path := filepath.Join(bundle, "config.json")
	b, err := readBounded(path)
	if err != nil {
		return fmt.Errorf("add the pod's files: %w", err)
	}
	if b, err = f.add(b); err != nil {
		return fmt.Errorf("add the pod's files to %s: %w", path, err)
	}
	if err := atomicfile.Write(path, b, 0o600, atomicfile.Volatile); err != nil {
		return fmt.Errorf("add the pod's files: %w", err)
	}
	return nil
}

// part has the fields of a specification that add looks at.
type part struct {
	Root  struct{ Readonly bool }
	Linux struct {
		Namespaces []specs.LinuxNamespace
	}
	Mounts []specs.Mount
}

func (f Files) add(config []byte) ([]byte, error) {
	var spec map[string]json.RawMessage
	var view part
	if err := errors.Join(json.Unmarshal(config, &spec), json.Unmarshal(config, &view)); err != nil {
		return nil, err
	}
	var mounts []json.RawMessage
	if raw := spec["mounts"]; raw != nil {
		if err := json.Unmarshal(raw, &mounts); err != nil {
			return nil, err
		}
	}
	kept := make([]json.RawMessage, 0, len(mounts)+len(places)+1)
	taken := map[string]bool{}
	for i, m := range view.Mounts {
		place := filepath.Clean(m.Destination)
		if place == shmPlace && m.Type == "tmpfs" && view.sharesIPC() {
			continue // the default one, which only this container would have
		}
		taken[place] = true
		kept = append(kept, mounts[i])
	}
	for _, m := range f.mounts(view) {
		if taken[m.Destination] {
			continue
		}
		raw, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		kept = append(kept, raw)
	}
	var err error
	if spec["mounts"], err = json.Marshal(kept); err != nil {
		return nil, err
	}
	return json.Marshal(spec)
}

// sharesIPC reports whether the container is in its pod's IPC namespace.
func (p part) sharesIPC() bool {
	for _, n := range p.Linux.Namespaces {
		if n.Type == specs.IPCNamespace {
			return n.Path != ""
		}
	}
	return false
}

func (f Files) mounts(view part) (mounts []specs.Mount) {
	access := "rw"
	if view.Root.Readonly {
		access = "ro"
	}
	for place, name := range places {
		mounts = append(mounts, specs.Mount{
			Destination: place, Type: "bind", Source: filepath.Join(f.dir, name), Options: []string{"rbind", "rprivate", access},
		})
	}
	if view.sharesIPC() {
		mounts = append(mounts, specs.Mount{
			Destination: shmPlace, Type: "bind", Source: filepath.Join(f.dir, "shm"), Options: []string{"rbind", "rprivate", "rw"},
		})
	}
	return mounts
}
