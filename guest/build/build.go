// Package build creates the guest bundle that package guest describes. It extracts the kernel from a distribution's
// image and packs the agent, crun, the launcher and the modules into an initrd. The same inputs give the same bytes.
package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/guest/internal/kmod"
	"github.com/bulkhead-project/bulkhead/guest/internal/vmlinux"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// Cmdline is the kernel command line, without a console.
//
// cryptomgr.notests, no5lvl and noreplace-smp skip boot work that is slow under emulation. init_on_alloc=0 skips
// clearing memory that the host has just cleared. no_timer_check skips a timer check that panics if the emulation is
// interrupted during it. panic=-1 turns a panic into a reset, which ends the VM. tsc=reliable keeps the kernel from
// distrusting a clock that differs from a clone's other clocks; otherwise a clone would switch to a clock that asks
// QEMU for every reading. auto-movable splits added memory between the kernel and the pods: if all of it were movable,
// the kernel would lack memory of its own; if none were, it could never be removed.
const Cmdline = "quiet panic=-1 cryptomgr.notests init_on_alloc=0 noreplace-smp no5lvl no_timer_check tsc=reliable" +
	" memhp_default_state=online memory_hotplug.online_policy=auto-movable"

// Options are the inputs of a bundle. Every path is required.
type Options struct {
	Kernel  string // a bzImage, or an uncompressed ELF kernel
	Modules string // the directory of its modules
	Agent   string // a static executable
	Crun    string // a static executable
	// Launcher is a static executable. See guest/launcher.
	Launcher string

	KernelSource string // for the manifest: package and version
	CrunSource   string
	CrunVersion  string

	// KeepSignatures keeps the modules' signatures, for a kernel that loads only signed ones (CONFIG_MODULE_SIG_FORCE).
	KeepSignatures bool

	Out string // the directory to create; replaces its bundle, if any
}

// Bundle creates the bundle and returns it. It does not rewrite unchanged files in Out. It must not run concurrently
// for one Out. A concurrent Load finds the old bundle, the new one, or none.
func Bundle(o Options) (guest.Bundle, error) {
	agent, err := os.ReadFile(o.Agent)
	if err != nil {
		return guest.Bundle{}, fmt.Errorf("read the agent: %w", err)
	}
	crun, err := os.ReadFile(o.Crun)
	if err != nil {
		return guest.Bundle{}, fmt.Errorf("read crun: %w", err)
	}
	launcher, err := os.ReadFile(o.Launcher)
	if err != nil {
		return guest.Bundle{}, fmt.Errorf("read the launcher: %w", err)
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return guest.Bundle{}, fmt.Errorf("create %s: %w", o.Out, err)
	}
	m := guest.Manifest{
		Format:  guest.Format,
		Cmdline: Cmdline,
		Crun:    guest.Crun{Version: o.CrunVersion, Source: o.CrunSource, SHA256: hash(crun)},
		Agent:   hash(agent),
		Files:   map[string]guest.File{},
	}
	if m.Kernel, m.Files[guest.KernelFile], err = makeKernel(o); err != nil {
		return guest.Bundle{}, err
	}
	dir, err := kmod.Open(o.Modules, m.Kernel.Release)
	if err != nil {
		return guest.Bundle{}, err
	}
	modules, err := pickModules(dir)
	if err != nil {
		return guest.Bundle{}, fmt.Errorf("pick modules from %s: %w", o.Modules, err)
	}
	for i, mod := range modules {
		m.Modules = append(m.Modules, mod.Name)
		if !o.KeepSignatures {
			modules[i].Data = kmod.Unsigned(mod.Data)
		}
	}
	archive, err := initrd(agent, crun, launcher, modules)
	if err != nil {
		return guest.Bundle{}, err
	}
	if m.Files[guest.InitrdFile], err = write(filepath.Join(o.Out, guest.InitrdFile), archive); err != nil {
		return guest.Bundle{}, err
	}
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return guest.Bundle{}, fmt.Errorf("encode the manifest: %w", err)
	}
	if _, err := write(filepath.Join(o.Out, guest.ManifestFile), append(manifest, '\n')); err != nil {
		return guest.Bundle{}, err
	}
	return guest.Load(o.Out)
}

// makeKernel writes vmlinux, unless the bundle in Out has one from the same image: unpacking takes a second.
func makeKernel(o Options) (guest.Kernel, guest.File, error) {
	image, err := os.ReadFile(o.Kernel)
	if err != nil {
		return guest.Kernel{}, guest.File{}, fmt.Errorf("read the kernel: %w", err)
	}
	k := guest.Kernel{Source: o.KernelSource, Image: hash(image)}
	path := filepath.Join(o.Out, guest.KernelFile)
	if old, err := guest.Load(o.Out); err == nil && old.Kernel.Image == k.Image {
		if file, err := guest.HashFile(path); err == nil && file == old.Files[guest.KernelFile] {
			k.Release = old.Kernel.Release
			return k, file, nil
		}
	}
	kernel, err := vmlinux.Extract(image)
	if err != nil {
		return guest.Kernel{}, guest.File{}, fmt.Errorf("unpack the kernel %s: %w", o.Kernel, err)
	}
	if k.Release, err = vmlinux.Release(kernel); err != nil {
		return guest.Kernel{}, guest.File{}, fmt.Errorf("unpack the kernel %s: %w", o.Kernel, err)
	}
	file, err := write(path, kernel)
	return k, file, err
}

// write replaces the file at path, unless the content is the same.
func write(path string, data []byte) (guest.File, error) {
	file := guest.File{Size: int64(len(data)), SHA256: hash(data)}
	old, err := guest.HashFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return guest.File{}, fmt.Errorf("write %s: %w", path, err)
	}
	if err == nil && old == file {
		return file, nil
	}
	if err := atomicfile.Write(path, data, 0o644, atomicfile.Durable); err != nil {
		return guest.File{}, err
	}
	return file, nil
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
