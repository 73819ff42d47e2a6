// Package rehearsal provides the pod for the rehearsal of parents: an image with one small program, and a typical
// container specification. Under emulation, QEMU then has already translated the code that a container runs in the
// guest's kernel, the agent and crun.
package rehearsal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/image/erofs"
	"github.com/bulkhead-project/bulkhead/internal/memfd"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/filter"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// name is the name of the program in the root of the image.
const name = "rehearse"

// Image creates the image's disk in memory, sealed and read-only. The caller must close it.
func Image() (*os.File, error) {
	f, err := memfd.Create("bulkhead-rehearsal")
	if err == nil {
		defer f.Close()
		err = write(f)
	}
	if err != nil {
		return nil, fmt.Errorf("make the rehearsal's image: %w", err)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// dirs are the directories of the root.
var dirs = []string{"dev", "etc", "proc", "sys"}

func write(f *os.File) error {
	w := erofs.NewWriter(f, 1<<20)
	content := program()
	data, err := w.Store(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return err
	}
	root := erofs.NewDir(0o755)
	root.Entries[name] = &erofs.Entry{Inode: &erofs.Inode{Mode: unix.S_IFREG | 0o755, Data: data}}
	for _, dir := range dirs {
		root.Entries[dir] = &erofs.Entry{Inode: erofs.NewDir(0o755)}
	}
	if _, err := w.Finish(root); err != nil {
		return err
	}
	if err := f.Truncate(hypervisor.SlotSize); err != nil {
		return err
	}
	return memfd.Seal(f, memfd.Constant)
}

// Script returns the container and the process for Image.
func Script() (r sandbox.Rehearsal, err error) {
	spec, err := oci.New(name, "/"+name, "wait")
	if err != nil {
		return r, fmt.Errorf("rehearsal: %w", err)
	}
	filter.Move(spec)
	process, err := oci.Exec(spec, []string{"/" + name}, false)
	if err != nil {
		return r, fmt.Errorf("rehearsal: %w", err)
	}
	if r.Container, err = json.Marshal(spec); err == nil {
		r.Exec, err = json.Marshal(process)
	}
	return r, err
}
