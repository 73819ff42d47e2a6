package oci

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// verdict returns the profile's answer to a call with all arguments zero.
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

func filter(t *testing.T, caps ...string) *specs.LinuxSeccomp {
	t.Helper()
	profile, err := DefaultSeccomp(caps)
	if err != nil {
		t.Fatal(err)
	}
	return profile
}

func TestSeccompFollowsCapabilities(t *testing.T) {
	tests := []struct {
		call, capability string // capability that allows it; empty: none
	}{
		{"mount", "CAP_SYS_ADMIN"}, {"bpf", "CAP_BPF"}, {"bpf", "CAP_SYS_ADMIN"}, {"perf_event_open", "CAP_PERFMON"},
		{"reboot", "CAP_SYS_BOOT"}, {"finit_module", "CAP_SYS_MODULE"}, {"settimeofday", "CAP_SYS_TIME"}, {"unshare", "CAP_SYS_ADMIN"},
		{"setns", "CAP_SYS_ADMIN"}, {"kexec_load", ""}, {"add_key", ""}, {"io_uring_setup", ""}, {"userfaultfd", ""},
	}
	for _, test := range tests {
		without := slices.DeleteFunc(AllCapabilities(), func(name string) bool {
			return name == test.capability || test.call == "bpf" || test.call == "perf_event_open"
		})
		if action, errno := verdict(filter(t, without...), test.call); action != specs.ActErrno || errno != uint(unix.EPERM) {
			t.Errorf("%s without %s: %s %d", test.call, test.capability, action, errno)
		}
		if test.capability == "" {
			continue
		}
		if action, _ := verdict(filter(t, test.capability), test.call); action != specs.ActAllow {
			t.Errorf("%s with %s: %s", test.call, test.capability, action)
		}
	}
}

func TestSeccompAnswers(t *testing.T) {
	profile := filter(t)
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
		if action, errno := verdict(profile, name); action != specs.ActErrno || errno != uint(unix.ENOSYS) {
			t.Errorf("%s: %s %d", name, action, errno)
		}
	}
}

// A filter does not define which of two rules wins, so no call has an unconditional rule beside another one.
func TestSeccompRulesAreDisjoint(t *testing.T) {
	for name, caps := range map[string][]string{"none": nil, "default": DefaultCapabilities(), "all": AllCapabilities()} {
		verdicts := map[string][]specs.LinuxSyscall{}
		for _, rule := range filter(t, caps...).Syscalls {
			for _, call := range rule.Names {
				verdicts[call] = append(verdicts[call], rule)
			}
		}
		for call, rules := range verdicts {
			for _, rule := range rules {
				if rule.Action != rules[0].Action || len(rules) > 1 && rule.Action != specs.ActAllow {
					t.Errorf("capabilities %s: %s has the rules %v", name, call, rules)
				}
			}
		}
	}
}

func TestSeccompCovers32BitPrograms(t *testing.T) {
	want := []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32}
	if got := filter(t).Architectures; !slices.Equal(got, want) {
		t.Errorf("architectures %v, want %v", got, want)
	}
}
