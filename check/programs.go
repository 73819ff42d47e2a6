package check

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

func (m *host) programs(context.Context) Finding {
	var paths []string
	for _, name := range []string{"bulkhead-engine", "bulkhead-shim", "bulkhead-convert", "bulkhead-share"} {
		path, err := dirs.Sibling(name)
		if err != nil {
			return judgePrograms(nil, err)
		}
		paths = append(paths, path)
	}
	return judgePrograms(paths, nil)
}

func judgePrograms(paths []string, err error) Finding {
	if err != nil {
		return fail(err.Error(), "install Bulkhead whole (make install), or set BULKHEAD_LIBEXEC to the directory of its programs")
	}
	return ok(strings.Join(paths, ", "))
}

// emulator is the state of QEMU.
type emulator struct {
	path    string
	version string // a whole line
	sandbox error  // nil if it can confine itself
	err     error  // it is missing or does not start
}

func (m *host) qemu(ctx context.Context) Finding {
	var e emulator
	d, err := qemu.New()
	if err == nil {
		e.path = d.Program
		e.version, err = d.Version(ctx)
	}
	if e.err = err; err == nil {
		m.driver = &d
		if out, err := exec.CommandContext(ctx, d.Program, "-sandbox", "on", "--version").CombinedOutput(); err != nil {
			e.sandbox = fmt.Errorf("%s: %w", strings.TrimSpace(string(out)), err)
		}
	}
	return judgeQEMU(e)
}

// oldestQEMU is the oldest version in Bulkhead's own tests. firstQEMU is the oldest one that knows all of a VM's
// arguments (i8042=off).
var (
	oldestQEMU = [2]int{7, 2}
	firstQEMU  = [2]int{7, 0}
)

// readOnlyQEMU is the first version that can open a template read-only. Older ones get a sealed copy in memory.
var readOnlyQEMU = [2]int{8, 2}

func judgeQEMU(e emulator) Finding {
	if e.err != nil {
		return fail(e.err.Error(), "install QEMU: apt-get install qemu-system-x86 (or your distribution's qemu-system-x86_64)")
	}
	newer := fmt.Sprintf("install QEMU %d.%d or later, or set BULKHEAD_QEMU to one", oldestQEMU[0], oldestQEMU[1])
	version, known := parseVersion(e.version)
	name := fmt.Sprintf("%s, %s", strings.TrimPrefix(e.version, "QEMU emulator version "), e.path)
	switch {
	case e.sandbox != nil:
		return fail(name+": it cannot confine itself: "+e.sandbox.Error(), "install a QEMU that was built with seccomp")
	case !known:
		return warn(name+": its version could not be read", "")
	case less(version, firstQEMU):
		return fail(name+": too old to run a pod's VM", newer)
	case less(version, oldestQEMU):
		return warn(name+": older than the versions that Bulkhead is tested with", newer)
	case less(version, readOnlyQEMU):
		return ok(name + ": seccomp; templates by sealed memory")
	}
	return ok(name + ": seccomp; templates opened read-only")
}

var versionNumber = regexp.MustCompile(`version (\d+)\.(\d+)`)

func parseVersion(line string) (v [2]int, known bool) {
	found := versionNumber.FindStringSubmatch(line)
	if found == nil {
		return v, false
	}
	for i := range v {
		n, err := strconv.Atoi(found[i+1])
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func less(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

// inside is the state of the guest bundle.
type inside struct {
	bundle guest.Bundle
	err    error  // it is missing or damaged
	agent  string // SHA-256 of the installed agent, empty if there is none
}

func (m *host) guest(context.Context) Finding {
	var i inside
	dir, err := dirs.Guest()
	if err == nil {
		i.bundle, err = guest.Load(dir)
	}
	if err == nil {
		err = i.bundle.Verify()
	}
	if i.err = err; err == nil {
		m.bundle = &i.bundle
	}
	if path, err := dirs.Sibling("bulkhead-agent"); err == nil {
		if f, err := guest.HashFile(path); err == nil {
			i.agent = f.SHA256
		}
	}
	return judgeGuest(i)
}

func judgeGuest(i inside) Finding {
	const remedy = "make it: make guest (or set BULKHEAD_GUEST to a bundle's directory)"
	if i.err != nil {
		return fail(i.err.Error(), remedy)
	}
	name := fmt.Sprintf("kernel %s, crun %s, %s", i.bundle.Kernel.Release, i.bundle.Crun.Version, i.bundle.Dir)
	if i.agent != "" && i.agent != i.bundle.Agent {
		return warn(name+": its agent is another build than the bulkhead-agent beside this program", "make the bundle again: make guest")
	}
	return ok(name)
}
