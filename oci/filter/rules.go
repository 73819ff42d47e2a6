package filter

import (
	"cmp"
	"maps"
	"slices"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// rule is a profile's rule for one system call. It applies if all conditions are met.
type rule struct {
	conditions []specs.LinuxSeccompArg
	action     uint32
}

// rules are the rules of a profile by the names of the calls, in the profile's order.
type rules map[string][]rule

// maxArgs is the number of arguments of a system call.
const maxArgs = 6

// parse returns the rules with another action than rest. It returns false for rules that are not valid or that contradict
// each other.
func parse(syscalls []specs.LinuxSyscall, rest uint32) (rules, bool) {
	out := rules{}
	for _, s := range syscalls {
		act, ok := action(s.Action, s.ErrnoRet)
		if !ok || !valid(s.Args) {
			return nil, false
		}
		if act == rest {
			continue
		}
		for _, name := range s.Names {
			if len(s.Args) == 0 || !repeated(s.Args) {
				out[name] = append(out[name], rule{s.Args, act})
				continue
			}
			for _, arg := range s.Args { // conditions on the same argument are alternatives
				out[name] = append(out[name], rule{[]specs.LinuxSeccompArg{arg}, act})
			}
		}
	}
	for name, of := range out {
		if contradictory(of) {
			return nil, false
		}
		for _, r := range of {
			if len(r.conditions) == 0 {
				out[name] = []rule{r} // the others have the same action
			}
		}
	}
	return out, true
}

// contradictory reports whether two rules with different actions may apply to the same call. The result would then
// depend on libseccomp's order.
func contradictory(of []rule) bool {
	for i, a := range of {
		for _, b := range of[i+1:] {
			if a.action != b.action && !exclude(a, b) {
				return true
			}
		}
	}
	return false
}

// exclude reports whether the rules require different values of the same argument.
func exclude(a, b rule) bool {
	for _, x := range a.conditions {
		for _, y := range b.conditions {
			differ := x.Op == specs.OpEqualTo && y.Op == specs.OpEqualTo && x.Value != y.Value
			negate := x.Value == y.Value && (x.Op == specs.OpEqualTo && y.Op == specs.OpNotEqual ||
				x.Op == specs.OpNotEqual && y.Op == specs.OpEqualTo)
			if x.Index == y.Index && (differ || negate) {
				return true
			}
		}
	}
	return false
}

// action returns the kernel's value of an action, and false for one that is unknown or takes no number.
func action(a specs.LinuxSeccompAction, number *uint) (value uint32, ok bool) {
	data := uint32(unix.EPERM)
	switch {
	case number == nil:
	case *number > unix.SECCOMP_RET_DATA || a != specs.ActErrno && a != specs.ActTrace:
		return 0, false
	default:
		data = uint32(*number)
	}
	switch a {
	case specs.ActAllow:
		return unix.SECCOMP_RET_ALLOW, true
	case specs.ActLog:
		return unix.SECCOMP_RET_LOG, true
	case specs.ActErrno:
		return unix.SECCOMP_RET_ERRNO | data, true
	case specs.ActTrace:
		return unix.SECCOMP_RET_TRACE | data, true
	case specs.ActTrap:
		return unix.SECCOMP_RET_TRAP, true
	case specs.ActKill, specs.ActKillThread:
		return unix.SECCOMP_RET_KILL_THREAD, true
	case specs.ActKillProcess:
		return unix.SECCOMP_RET_KILL_PROCESS, true
	}
	return 0, false
}

func valid(args []specs.LinuxSeccompArg) bool {
	return len(args) <= maxArgs && !slices.ContainsFunc(args, func(a specs.LinuxSeccompArg) bool {
		_, known := compare[a.Op]
		return a.Index >= maxArgs || !known
	})
}

// repeated reports whether several conditions concern the same argument.
func repeated(args []specs.LinuxSeccompArg) bool {
	seen := map[uint]bool{}
	for _, a := range args {
		if seen[a.Index] {
			return true
		}
		seen[a.Index] = true
	}
	return false
}

// table has the system calls of an architecture.
type table struct {
	*arch.Info
	// wide means that arguments have 64 bits.
	wide bool
}

var (
	x86_64Table = table{arch.X86_64, true}
	i386Table   = table{Info: arch.I386}
)

// call is the treatment of the calls from number to until.
type call struct {
	number, until uint32
	rules         []rule // with conditions
	otherwise     uint32 // the action if no rule applies
	wide          bool
}

// decide returns the treatment of the architecture's calls for which there are rules.
func (t table) decide(all rules, rest uint32) (out []call) {
	for name, of := range all {
		number, ok := t.SyscallNames[name]
		if !ok {
			continue // of another architecture
		}
		n := uint32(number)
		c := call{number: n, until: n, otherwise: rest, wide: t.wide}
		if len(of[0].conditions) == 0 {
			c.otherwise = of[0].action
		} else {
			c.rules = of
		}
		out = append(out, c)
	}
	return out
}

// ranges returns the treatment of all numbers in order. Calls that are not listed have the action rest.
func ranges(calls []call, rest uint32) (out []call) {
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.number, b.number) })
	next := uint32(0)
	add := func(c call) {
		last := len(out) - 1
		if last >= 0 && c.rules == nil && out[last].rules == nil && out[last].otherwise == c.otherwise {
			out[last].until = c.until
			return
		}
		out = append(out, c)
	}
	for _, c := range calls {
		if c.number > next {
			add(call{number: next, until: c.number - 1, otherwise: rest})
		}
		add(c)
		next = c.until + 1
	}
	add(call{number: next, until: invalid, otherwise: rest})
	return out
}

// multiplexed reports whether the rules concern a call that 32-bit programs may also make through socketcall or ipc,
// without a rule for these. libseccomp then adds rules.
func multiplexed(all rules) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(through)), func(name string) bool {
		multiplexer := all[through[name]]
		return all[name] != nil && (multiplexer == nil || len(multiplexer[0].conditions) > 0)
	})
}

// through has the multiplexer of each multiplexed call of i386.
var through = func() map[string]string {
	out := map[string]string{}
	for _, name := range []string{
		"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recv", "recvfrom",
		"recvmmsg", "recvmsg", "send", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "socket", "socketpair",
	} {
		out[name] = "socketcall"
	}
	for _, name := range []string{
		"msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt", "shmget",
	} {
		out[name] = "ipc"
	}
	return out
}()
