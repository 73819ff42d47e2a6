package build

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/bulkhead-project/bulkhead/guest/internal/kmod"
	"github.com/bulkhead-project/bulkhead/internal/cpio"
)

// The names in the initrd that the agent knows.
const (
	initName    = "init"
	crunName    = "usr/bin/crun"
	moduleDir   = "lib/modules"
	moduleList  = "etc/modules.load" // an absolute path a line, and after a space its parameters, in load order
	consoleName = "dev/console"      // what init's standard streams are opened on
)

// initrd makes the archive that is the guest's root: the agent as /init, crun,
// the modules with the list to load them by, and empty directories to mount on.
//
// It is not compressed: under emulation the guest got to init in 1.33 s at best
// and 1.47 s in the middle with this, and in 1.33 and 1.55 s with lz4, which
// takes 2.3 MB on the host's disk in place of 5.1.
func initrd(agent, crun []byte, modules []kmod.Module) ([]byte, error) {
	entries := []cpio.Entry{}
	dir := func(name string, perm uint32) {
		entries = append(entries, cpio.Entry{Name: name, Mode: cpio.Dir | perm})
	}
	file := func(name string, perm uint32, data []byte) {
		entries = append(entries, cpio.Entry{Name: name, Mode: cpio.File | perm, Data: data})
	}
	for _, name := range []string{"dev", "etc", "lib", moduleDir, "mnt", "proc", "run", "sys", "usr", "usr/bin"} {
		dir(name, 0o755)
	}
	dir("root", 0o700)
	dir("tmp", 0o1777)
	entries = append(entries, cpio.Entry{Name: consoleName, Mode: cpio.Device | 0o600, Major: 5, Minor: 1})

	file(initName, 0o755, agent)
	file(crunName, 0o755, crun)
	var list bytes.Buffer
	for _, m := range modules {
		name := moduleDir + "/" + m.Name + ".ko"
		file(name, 0o644, m.Data)
		fmt.Fprintln(&list, strings.TrimSpace("/"+name+" "+parameters[m.Name]))
	}
	file(moduleList, 0o644, list.Bytes())

	var out bytes.Buffer
	if err := cpio.Write(&out, entries); err != nil {
		return nil, fmt.Errorf("write initrd: %w", err)
	}
	return out.Bytes(), nil
}
