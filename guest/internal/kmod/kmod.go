// Package kmod selects modules and their dependencies from a kernel's module directory, in load order.
package kmod

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bulkhead-project/bulkhead/guest/internal/unpack"
)

// maxSize bounds one unpacked module.
const maxSize = 64 << 20

// Module is one module, unpacked.
type Module struct {
	Name string // with underscores
	Data []byte // the ELF file
}

// Dir is the directory of one kernel's modules, as in /lib/modules.
type Dir struct {
	release string
	builtin map[string]bool
	files   map[string]string // path by name
}

// Open reads the modules in dir for the kernel of that release. It needs modules.builtin and the modules, but no files
// of depmod.
func Open(dir, release string) (*Dir, error) {
	d := &Dir{release: release, builtin: map[string]bool{}, files: map[string]string{}}
	if err := d.readBuiltin(filepath.Join(dir, "modules.builtin")); err != nil {
		return nil, fmt.Errorf("open modules: %w", err)
	}
	// Only modules that came with the kernel: those added to a host in extra, updates and the like do not belong in the
	// guest.
	err := filepath.WalkDir(filepath.Join(dir, "kernel"), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		if name, ok := moduleName(file); ok {
			d.files[name] = file
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open modules: %w", err)
	}
	return d, nil
}

func (d *Dir) readBuiltin(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, ok := moduleName(lines.Text()); ok {
			d.builtin[name] = true
		}
	}
	return lines.Err()
}

// moduleName returns the module's name for kernel/fs/fuse/fuse.ko.xz.
func moduleName(file string) (string, bool) {
	name, ending, ok := strings.Cut(path.Base(filepath.ToSlash(file)), ".ko")
	switch ending {
	case "", ".gz", ".xz", ".zst":
		return normalise(name), ok
	}
	return "", false
}

// Has reports whether the kernel has name, as a module or built in.
func (d *Dir) Has(name string) bool {
	name = normalise(name)
	return d.builtin[name] || d.files[name] != ""
}

// Order returns the modules called names and their dependencies, each once and after its dependencies, without built-in
// ones. The error names the module.
func (d *Dir) Order(names ...string) ([]Module, error) {
	o := order{dir: d, state: map[string]state{}}
	for _, name := range names {
		if err := o.add(normalise(name)); err != nil {
			return nil, err
		}
	}
	return o.out, nil
}

type state int

const (
	unseen state = iota
	entered
	placed
)

type order struct {
	dir   *Dir
	state map[string]state
	out   []Module
}

func (o *order) add(name string) error {
	switch {
	case o.state[name] == placed || o.dir.builtin[name]:
		return nil
	case o.state[name] == entered:
		return fmt.Errorf("module %s: modules depend on each other", name)
	case o.dir.files[name] == "":
		return fmt.Errorf("module %s: neither a module nor built in", name)
	}
	o.state[name] = entered
	data, err := read(o.dir.files[name])
	if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	i, err := parseInfo(data)
	if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	if i.vermagic != o.dir.release {
		return fmt.Errorf("module %s: modules are for another kernel: it is for %q, the kernel is %q", name, i.vermagic, o.dir.release)
	}
	for _, dep := range i.depends {
		if err := o.add(dep); err != nil {
			return fmt.Errorf("%w (needed by %s)", err, name)
		}
	}
	for _, dep := range i.before {
		if !o.dir.Has(dep) {
			continue // an alias of a built-in module, or unknown
		}
		if err := o.add(dep); err != nil {
			return fmt.Errorf("%w (soft dependency of %s)", err, name)
		}
	}
	o.state[name] = placed
	o.out = append(o.out, Module{Name: name, Data: data})
	return nil
}

func read(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return unpack.ELF(data, maxSize)
}
