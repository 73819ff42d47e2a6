// Package filter compiles the seccomp profile of a runtime specification into the kernel's program.
//
// The guest's runtime would compile the profile with libseccomp. Under emulation that takes 20 ms for one architecture
// and 200 ms for three, and the names of the calls are most of a specification. Here it takes less than a millisecond.
//
// The program answers like libseccomp's (TestSameAsLibseccomp), but it knows newer system calls. libseccomp ignores a
// rule for a call that it does not know.
package filter

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"math"
	"runtime"
	"slices"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// x32 marks the numbers of the x32 architecture, which the kernel reports as x86_64.
const x32 = 0x40000000

// invalid is the number of a call that a tracer has replaced. It is in no architecture's table.
const invalid = math.MaxUint32

// Move replaces the rules of a specification's seccomp profile by the program, in the annotation agentv1.SeccompFilter. It
// leaves a profile alone that Compile cannot compile. It may change spec, but no value behind its pointers.
func Move(spec *specs.Spec) {
	spec.Annotations = maps.Clone(spec.Annotations)
	delete(spec.Annotations, agentv1.SeccompFilter) // a client's
	if spec.Linux == nil || spec.Linux.Seccomp == nil {
		return
	}
	program := Compile(spec.Linux.Seccomp)
	if program == nil {
		return
	}
	if spec.Annotations == nil {
		spec.Annotations = map[string]string{}
	}
	spec.Annotations[agentv1.SeccompFilter] = base64.StdEncoding.EncodeToString(program)
	linux := *spec.Linux
	linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: linux.Seccomp.DefaultAction, Flags: linux.Seccomp.Flags}
	spec.Linux = &linux
}

// Compile returns the program for a profile, as an array of struct sock_filter. It returns nil for a profile that only
// the guest's runtime can judge: it has an unknown word, or a rare rule that libseccomp translates in its own way.
func Compile(profile *specs.LinuxSeccomp) []byte {
	native, x32s, i386, known := architectures(profile.Architectures)
	if !known {
		return nil
	}
	rest, ok := action(profile.DefaultAction, profile.DefaultErrnoRet)
	if !ok {
		return nil
	}
	rules, ok := parse(profile.Syscalls, rest)
	if !ok {
		return nil
	}
	calls := native.decide(rules, rest)
	other := call{number: x32, until: invalid - 1, otherwise: unix.SECCOMP_RET_KILL_THREAD}
	if x32s {
		other.otherwise = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS) // as the guest's kernel, which lacks them
	}
	calls = append(calls, other)
	foreign := []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_THREAD}}
	if i386 {
		if multiplexed(rules) {
			return nil
		}
		foreign = slices.Concat(unless(uint32(arch.I386.ID), foreign), search(i386Table.decide(rules, rest), rest))
	}
	return encode(slices.Concat(
		[]bpf.Instruction{bpf.LoadAbsolute{Off: offsetArch, Size: 4}},
		unless(uint32(arch.X86_64.ID), foreign),
		search(calls, rest)))
}

// search returns the program for the calls of one architecture.
func search(calls []call, rest uint32) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.LoadAbsolute{Off: offsetNumber, Size: 4}}, tree(ranges(calls, rest))...)
}

// architectures returns the table of the host's architecture, which every program covers, and reports which others
// the names include.
func architectures(names []specs.Arch) (native table, x32s, i386, known bool) {
	if runtime.GOARCH != "amd64" {
		return table{}, false, false, false
	}
	for _, name := range names {
		switch name {
		case specs.ArchX86_64:
		case specs.ArchX32:
			x32s = true
		case specs.ArchX86:
			i386 = true
		default:
			return table{}, false, false, false
		}
	}
	return x86_64Table, x32s, i386, true
}

// encode returns the kernel's form of a program, nil if it is too long for the kernel.
func encode(program []bpf.Instruction) []byte {
	raw, err := bpf.Assemble(program)
	if err != nil || len(raw) > unix.BPF_MAXINSNS {
		return nil
	}
	var out []byte
	for _, i := range raw {
		out = binary.LittleEndian.AppendUint16(out, i.Op)
		out = append(out, i.Jt, i.Jf)
		out = binary.LittleEndian.AppendUint32(out, i.K)
	}
	return out
}
