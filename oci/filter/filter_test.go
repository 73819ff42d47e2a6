package filter_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/filter"
)

const (
	x32 = 0x40000000
	// newest is the newest system call (5.17) of Debian 12's libseccomp. It also lacks uretprobe.
	newest = 450
)

var all = []specs.Arch{specs.ArchX86_64, specs.ArchX32, specs.ArchX86}

func number(n uint) *uint { return &n }

func rule(name string, action specs.LinuxSeccompAction, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{name}, Action: action, Args: args}
}

// with returns a profile for all architectures.
func with(rest specs.LinuxSeccompAction, rules ...specs.LinuxSyscall) *specs.LinuxSeccomp {
	return &specs.LinuxSeccomp{DefaultAction: rest, Architectures: all, Syscalls: rules}
}

func arg(index uint, op specs.LinuxSeccompOperator, value, valueTwo uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Op: op, Value: value, ValueTwo: valueTwo}
}

// moby returns the profile of docker and containerd for their default capabilities.
func moby(t *testing.T) *specs.LinuxSeccomp {
	t.Helper()
	caps := &specs.LinuxCapabilities{Bounding: oci.DefaultCapabilities()}
	p, err := seccomp.GetDefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: caps}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSameAsLibseccomp compares the answers of both programs to calls of all architectures with all numbers, and with
// arguments at the borders of the conditions. A call of x32 is unknown, because the guest's kernel does not know it.
func TestSameAsLibseccomp(t *testing.T) {
	t.Parallel()
	oracle := filepath.Join(t.TempDir(), "oracle")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-o", oracle, "testdata/oracle.c", "-lseccomp").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, out)
	}
	ours, err := oci.DefaultSeccomp(oci.DefaultCapabilities())
	if err != nil {
		t.Fatal(err)
	}
	profiles := map[string]*specs.LinuxSeccomp{
		"ours":    ours,
		"moby's":  moby(t),
		"empty":   {DefaultAction: specs.ActAllow},
		"nothing": {DefaultAction: specs.ActKillProcess, Architectures: all},
		"actions": {DefaultAction: specs.ActLog, Architectures: all, Syscalls: []specs.LinuxSyscall{
			rule("read", specs.ActKill), rule("write", specs.ActKillThread), rule("open", specs.ActKillProcess),
			{Names: []string{"close", "unknown_call"}, Action: specs.ActErrno, ErrnoRet: number(38)}, rule("stat", specs.ActErrno),
			{Names: []string{"fstat"}, Action: specs.ActTrace, ErrnoRet: number(7)}, rule("poll", specs.ActTrap), rule("lstat", specs.ActAllow),
		}},
		"exclusive": {DefaultAction: specs.ActErrno, Architectures: all[:2], Syscalls: []specs.LinuxSyscall{
			{
				Names: []string{"socket"}, Action: specs.ActErrno, ErrnoRet: number(22),
				Args: []specs.LinuxSeccompArg{arg(0, specs.OpEqualTo, 16, 0), arg(2, specs.OpEqualTo, 9, 0)},
			},
			rule("socket", specs.ActAllow, arg(2, specs.OpNotEqual, 9, 0)), rule("socket", specs.ActAllow, arg(0, specs.OpNotEqual, 16, 0)),
		}},
		"unequal last": with(specs.ActErrno, rule("prctl", specs.ActKill, arg(1, specs.OpEqualTo, 2, 0)),
			rule("prctl", specs.ActAllow, arg(1, specs.OpNotEqual, 2, 0))),
		"with and without conditions": with(specs.ActErrno, rule("read", specs.ActAllow, arg(0, specs.OpEqualTo, 1, 0)),
			rule("read", specs.ActAllow), rule("read", specs.ActAllow, arg(0, specs.OpEqualTo, 2, 0))),
		"six conditions": {DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{
			rule("mmap", specs.ActAllow, arg(0, specs.OpEqualTo, 0, 0), arg(1, specs.OpGreaterThan, 8, 0), arg(2, specs.OpLessThan, 16, 0),
				arg(3, specs.OpNotEqual, 9, 0), arg(4, specs.OpLessEqual, 1<<32, 0), arg(5, specs.OpMaskedEqual, 1, 1)),
		}},
		"alternatives": {DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{
			rule("personality", specs.ActAllow, arg(0, specs.OpEqualTo, 8, 0), arg(0, specs.OpEqualTo, 0x20000, 0)),
		}},
	}
	for op, two := range map[specs.LinuxSeccompOperator]uint64{
		specs.OpEqualTo: 0, specs.OpNotEqual: 0, specs.OpGreaterThan: 0, specs.OpGreaterEqual: 0, specs.OpLessEqual: 0, specs.OpLessThan: 0,
		specs.OpMaskedEqual: 0x1_0000_0001,
	} {
		for _, value := range []uint64{0, 9, 0x7_0000_0005, math.MaxUint32, math.MaxUint64} {
			profiles[fmt.Sprintf("%s %#x", op, value)] = with(specs.ActErrno,
				rule("ioctl", specs.ActAllow, arg(1, op, value, two&value)),
				rule("prctl", specs.ActKill, arg(0, specs.OpEqualTo, 9, 0), arg(5, op, value, two&value)))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 20 {
		p := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Architectures: all[:1+random.IntN(2)]}
		for name, n := range arch.X86_64.SyscallNames {
			if n <= newest && name != "uretprobe" && random.IntN(3) == 0 {
				p.Syscalls = append(p.Syscalls, rule(name, []specs.LinuxSeccompAction{specs.ActAllow, specs.ActTrap, specs.ActLog}[random.IntN(3)]))
			}
		}
		profiles[fmt.Sprintf("random %d", i)] = p
	}
	for name, p := range profiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := decode(t, filter.Compile(p)), decode(t, libseccomp(t, oracle, p))
			t.Logf("%d instructions, libseccomp's %d", got.size, want.size)
			compare(t, got, want, p)
		})
	}
}

// compare runs both programs.
func compare(t *testing.T, got, want vm, p *specs.LinuxSeccomp) {
	t.Helper()
	values := []uint64{0, 1, 8, 9, 10, 16, math.MaxUint32, 1 << 32, math.MaxUint64}
	conditions := map[string]bool{}
	for _, s := range p.Syscalls {
		for _, a := range s.Args {
			conditions[s.Names[0]] = true
			values = append(values, a.Value-1, a.Value, a.Value+1, a.Value^1<<32, a.Value^1<<40, a.Value&math.MaxUint32, a.Value<<32)
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, of := range []*arch.Info{arch.X86_64, arch.X32, arch.I386, {ID: 0xc00000b7}} {
		numbers := []uint32{451 + 1000, x32 - 1, x32, x32 + 1000, math.MaxUint32 - 1, math.MaxUint32}
		for n := range uint32(newest + 120) { // x32 has calls above 512
			if known := of.SyscallNumbers[int(n)]; known != "uretprobe" && (known == "" || n <= newest || n >= 512) {
				numbers = append(numbers, n|uint32(of.SeccompMask))
			}
		}
		for _, n := range numbers {
			tries := 1
			if conditions[of.SyscallNumbers[int(n&^x32)]] {
				tries = 2000
			}
			for range tries {
				data := make([]uint32, 16)
				data[0], data[1] = n, uint32(of.ID)
				for i := range 6 {
					v := values[random.IntN(len(values))]
					data[4+2*i], data[5+2*i] = uint32(v), uint32(v>>32)
				}
				g, w := got.run(t, data), want.run(t, data)
				if n >= x32 && n != math.MaxUint32 && slices.Contains(p.Architectures, specs.ArchX32) && of.ID == arch.X86_64.ID {
					w = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
				}
				if g != w {
					t.Fatalf("call %d (%s) of %s with %x: got %#x, want %#x", n, of.SyscallNumbers[int(n&^x32)], of.Name, data[4:], g, w)
				}
			}
		}
	}
}

// vm runs a program.
type vm struct {
	*bpf.VM
	size int
}

func decode(t *testing.T, program []byte) vm {
	t.Helper()
	var raw []bpf.RawInstruction
	for ; len(program) >= 8; program = program[8:] {
		raw = append(raw, bpf.RawInstruction{
			Op: binary.LittleEndian.Uint16(program), Jt: program[2], Jf: program[3], K: binary.LittleEndian.Uint32(program[4:]),
		})
	}
	instructions, ok := bpf.Disassemble(raw)
	if !ok || len(raw) == 0 {
		t.Fatalf("%d instructions cannot be read", len(raw))
	}
	m, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return vm{m, len(raw)}
}

// run returns the answer to a call. The interpreter reads big-endian words.
func (m vm) run(t *testing.T, data []uint32) uint32 {
	t.Helper()
	var packet []byte
	for _, word := range data {
		packet = binary.BigEndian.AppendUint32(packet, word)
	}
	out, err := m.Run(packet)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(out)
}

// libseccomp compiles a profile with testdata/oracle.c.
func libseccomp(t *testing.T, oracle string, p *specs.LinuxSeccomp) []byte {
	t.Helper()
	rest := act(p.DefaultAction, p.DefaultErrnoRet)
	var in strings.Builder
	for _, a := range p.Architectures {
		fmt.Fprintf(&in, "a %s\n", strings.ToLower(strings.TrimPrefix(string(a), "SCMP_ARCH_")))
	}
	for _, s := range p.Syscalls {
		if act(s.Action, s.ErrnoRet) == rest {
			continue
		}
		lists := [][]specs.LinuxSeccompArg{s.Args}
		if len(s.Args) == 2 && s.Args[0].Index == s.Args[1].Index {
			lists = [][]specs.LinuxSeccompArg{s.Args[:1], s.Args[1:]}
		}
		for _, name := range s.Names {
			for _, args := range lists {
				fmt.Fprintf(&in, "r %s %x %d", name, act(s.Action, s.ErrnoRet), len(args))
				for _, a := range args {
					fmt.Fprintf(&in, " %d %s %d %d", a.Index, a.Op, a.Value, a.ValueTwo)
				}
				in.WriteString("\n")
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), oracle, fmt.Sprint(rest))
	cmd.Stdin = strings.NewReader(in.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("libseccomp: %v: %s", err, stderr.String())
	}
	return out
}

func act(a specs.LinuxSeccompAction, n *uint) uint32 {
	data := uint32(unix.EPERM)
	if n != nil {
		data = uint32(*n)
	}
	switch a {
	case specs.ActErrno:
		return unix.SECCOMP_RET_ERRNO | data
	case specs.ActTrace:
		return unix.SECCOMP_RET_TRACE | data
	default:
		return map[specs.LinuxSeccompAction]uint32{
			specs.ActAllow: unix.SECCOMP_RET_ALLOW, specs.ActLog: unix.SECCOMP_RET_LOG, specs.ActTrap: unix.SECCOMP_RET_TRAP,
			specs.ActKillProcess: unix.SECCOMP_RET_KILL_PROCESS,
		}[a]
	}
}

// TestLeftToTheGuest checks that Compile leaves a profile to the guest's runtime if that may judge otherwise.
func TestLeftToTheGuest(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*specs.LinuxSeccomp{
		"no action":            {},
		"unknown action":       {DefaultAction: "SCMP_ACT_NEW"},
		"listener":             {DefaultAction: specs.ActNotify},
		"number of no use":     {DefaultAction: specs.ActAllow, DefaultErrnoRet: number(1)},
		"number too large":     {DefaultAction: specs.ActErrno, DefaultErrnoRet: number(1 << 16)},
		"unknown architecture": {DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchS390}},
		"unknown operator":     with(specs.ActErrno, rule("read", specs.ActAllow, arg(0, "SCMP_CMP_NEW", 0, 0))),
		"argument 6":           with(specs.ActErrno, rule("read", specs.ActAllow, arg(6, specs.OpEqualTo, 0, 0))),
		"unknown rule":         with(specs.ActErrno, rule("read", "SCMP_ACT_NEW")),
		"contradiction": with(specs.ActErrno, rule("read", specs.ActAllow, arg(0, specs.OpEqualTo, 0, 0)),
			rule("read", specs.ActKill, arg(1, specs.OpEqualTo, 0, 0))),
		"exception":   with(specs.ActErrno, rule("read", specs.ActAllow), rule("read", specs.ActKill, arg(1, specs.OpEqualTo, 0, 0))),
		"multiplexed": with(specs.ActErrno, rule("bind", specs.ActAllow)),
	} {
		if got := filter.Compile(p); got != nil {
			t.Errorf("%s: got %d bytes, want none", name, len(got))
		}
	}
}

// TestExclusive checks that rules for different values of an argument all apply, in any order. libseccomp 2.5 ignores
// the second rule for some values.
func TestExclusive(t *testing.T) {
	t.Parallel()
	one, two := rule("dup", specs.ActAllow, arg(0, specs.OpEqualTo, 1, 0)), rule("dup", specs.ActKill, arg(0, specs.OpEqualTo, 2, 0))
	other := rule("dup", specs.ActAllow, arg(0, specs.OpNotEqual, 2, 0))
	const upper = 1 << 32
	allow, refuse := uint32(unix.SECCOMP_RET_ALLOW), unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM)
	for _, c := range []struct {
		rules []specs.LinuxSyscall
		want  map[uint64]uint32
	}{
		{[]specs.LinuxSyscall{one, two}, map[uint64]uint32{1: allow, 2: 0, 3: refuse, upper + 1: refuse, upper + 2: refuse}},
		{[]specs.LinuxSyscall{two, one}, map[uint64]uint32{1: allow, 2: 0, 3: refuse, upper + 1: refuse, upper + 2: refuse}},
		{[]specs.LinuxSyscall{other, two}, map[uint64]uint32{1: allow, 2: 0, 3: allow, upper + 1: allow, upper + 2: allow}},
		{[]specs.LinuxSyscall{two, other}, map[uint64]uint32{1: allow, 2: 0, 3: allow, upper + 1: allow, upper + 2: allow}},
	} {
		for value, want := range c.want {
			data := make([]uint32, 16)
			data[0], data[1], data[4], data[5] = unix.SYS_DUP, uint32(arch.X86_64.ID), uint32(value), uint32(value>>32)
			if got := decode(t, filter.Compile(with(specs.ActErrno, c.rules...))).run(t, data); got != want {
				t.Errorf("%v with %#x: got %#x, want %#x", c.rules, value, got, want)
			}
		}
	}
}

// TestMove checks that a compiled profile leaves only its default action and flags, and that the caller's specification
// stays. A client's own filter has no effect.
func TestMove(t *testing.T) {
	t.Parallel()
	profile := specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, Flags: []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagLog},
		Syscalls: []specs.LinuxSyscall{rule("read", specs.ActKill)},
	}
	odd := profile
	odd.DefaultAction = specs.ActNotify
	compiled := base64.StdEncoding.EncodeToString(filter.Compile(&profile))
	moved := &specs.LinuxSeccomp{DefaultAction: profile.DefaultAction, Flags: profile.Flags}
	theirs := map[string]string{agentv1.SeccompFilter: "theirs", "k": "v"}
	for name, c := range map[string]struct{ in, want specs.Spec }{
		"no profile": {specs.Spec{Linux: &specs.Linux{}}, specs.Spec{Linux: &specs.Linux{}}},
		"no linux":   {specs.Spec{Annotations: theirs}, specs.Spec{Annotations: map[string]string{"k": "v"}}},
		"a profile": {
			specs.Spec{Linux: &specs.Linux{CgroupsPath: "c", Seccomp: &profile}},
			specs.Spec{Linux: &specs.Linux{CgroupsPath: "c", Seccomp: moved}, Annotations: map[string]string{agentv1.SeccompFilter: compiled}},
		},
		"annotations": {
			specs.Spec{Linux: &specs.Linux{Seccomp: &profile}, Annotations: theirs},
			specs.Spec{Linux: &specs.Linux{Seccomp: moved}, Annotations: map[string]string{"k": "v", agentv1.SeccompFilter: compiled}},
		},
		"left to the guest": {
			specs.Spec{Linux: &specs.Linux{Seccomp: &odd}, Annotations: theirs},
			specs.Spec{Linux: &specs.Linux{Seccomp: &odd}, Annotations: map[string]string{"k": "v"}},
		},
	} {
		got := c.in
		filter.Move(&got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if len(profile.Syscalls) != 1 || theirs[agentv1.SeccompFilter] != "theirs" {
		t.Errorf("the caller's specification has changed: %v, %v", profile, theirs)
	}
}

// TestQuick checks that a client's profile compiles in a few milliseconds.
func TestQuick(t *testing.T) {
	p := moby(t)
	fastest := time.Hour
	for range 10 {
		begin := time.Now()
		filter.Compile(p)
		fastest = min(fastest, time.Since(begin))
	}
	if fastest > 5*time.Millisecond {
		t.Errorf("it took %v", fastest)
	}
	t.Log(fastest)
}
