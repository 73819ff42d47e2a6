package build

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/bulkhead-project/bulkhead/guest/internal/kmod"
	"github.com/bulkhead-project/bulkhead/internal/cpio"
)

// Paths in the initrd that the agent uses.
const (
	initName    = "init"
	crunName    = "usr/bin/crun"
	launchName  = "usr/bin/bulkhead-launcher"
	moduleDir   = "lib/modules"
	moduleList  = "etc/modules.load" // in load order: a line is a module's absolute path, a space and its parameters
	consoleName = "dev/console"      // the kernel opens it as the standard streams of init
)

// initrd returns the archive of the guest's root: the agent as /init, crun, the launcher, the modules with their load list,
// and empty directories for mounts.
//
// The archive is not compressed. With lz4 it takes 2.3 MB instead of 5.1 MB, but an emulated guest reaches init after
// 1.55 s instead of 1.47 s (medians).
func initrd(agent, crun, launcher []byte, modules []kmod.Module) ([]byte, error) {
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
	file(launchName, 0o755, launcher)
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
