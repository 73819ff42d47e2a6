package oci

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// verdict is what the profile answers to a call whose arguments are all zero.
func verdict(profile *specs.LinuxSeccomp, name string) (specs.LinuxSeccompAction, uint) {
	for _, rule := range profile.Syscalls {
		if !slices.Contains(rule.Names, name) {
			continue
		}
		if rule.ErrnoRet != nil {
			return rule.Action, *rule.ErrnoRet
		}
		return rule.Action, 0
	}
	return profile.DefaultAction, *profile.DefaultErrnoRet
}

func TestSeccompFollowsCapabilities(t *testing.T) {
	tests := []struct {
		call, capability string // the capability that opens it; empty: none does
	}{
		{"mount", "CAP_SYS_ADMIN"}, {"bpf", "CAP_BPF"}, {"bpf", "CAP_SYS_ADMIN"}, {"perf_event_open", "CAP_PERFMON"},
		{"reboot", "CAP_SYS_BOOT"}, {"finit_module", "CAP_SYS_MODULE"}, {"settimeofday", "CAP_SYS_TIME"}, {"unshare", "CAP_SYS_ADMIN"},
		{"setns", "CAP_SYS_ADMIN"}, {"kexec_load", ""}, {"add_key", ""}, {"io_uring_setup", ""}, {"userfaultfd", ""},
	}
	for _, test := range tests {
		all := &specs.LinuxCapabilities{Bounding: slices.DeleteFunc(slices.Clone(allCapabilities), func(name string) bool {
			return name == test.capability || test.call == "bpf" || test.call == "perf_event_open"
		})}
		if action, errno := verdict(defaultSeccomp(all), test.call); action != specs.ActErrno || errno != ePERM {
			t.Errorf("%s without %s: %s %d", test.call, test.capability, action, errno)
		}
		if test.capability == "" {
			continue
		}
		with := &specs.LinuxCapabilities{Bounding: []string{test.capability}}
		if action, _ := verdict(defaultSeccomp(with), test.call); action != specs.ActAllow {
			t.Errorf("%s with %s: %s", test.call, test.capability, action)
		}
	}
}

func TestSeccompAnswers(t *testing.T) {
	profile := defaultSeccomp(nil)
	for _, name := range strings.Fields("read write openat execve clone socket futex chroot_") {
		want := specs.ActAllow
		if name == "chroot_" {
			want = specs.ActErrno
		}
		if action, _ := verdict(profile, name); action != want {
			t.Errorf("%s: %s", name, action)
		}
	}
	for _, name := range []string{"clone3", "a_call_of_tomorrow"} {
		if action, errno := verdict(profile, name); action != specs.ActErrno || errno != eNOSYS {
			t.Errorf("%s: %s %d", name, action, errno)
		}
	}
}

// Each call is in one list only: a filter does not say which of two rules wins.
func TestSeccompListsAreDisjoint(t *testing.T) {
	seen := map[string]string{}
	lists := map[string]string{"ordinary": ordinarySyscalls, "forbidden": forbiddenSyscalls, "by arguments": "clone clone3 personality setns socket unshare"}
	for _, guarded := range guardedSyscalls {
		lists["guarded"] += " " + guarded.names
	}
	for list, names := range lists {
		for _, name := range strings.Fields(names) {
			if other, found := seen[name]; found && other != list {
				t.Errorf("%s is %s and %s", name, list, other)
			}
			seen[name] = list
		}
	}
}
