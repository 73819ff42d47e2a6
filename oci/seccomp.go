package oci

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Numbers of the kernel's interface, the same on every architecture that the
// guest runs on.
const (
	ePERM  = 1
	eNOSYS = 38

	// cloneNamespaces are all the CLONE_NEW* flags that clone takes.
	cloneNamespaces = 0x7e020000
	afVsock         = 40
)

// seccomp chooses the profile: none asked for is none, as the CRI has it, and a
// privileged container has none whatever it asks for.
func seccomp(security *runtimeapi.LinuxContainerSecurityContext, localhost *specs.LinuxSeccomp, caps *specs.LinuxCapabilities) (*specs.LinuxSeccomp, error) {
	profile := security.GetSeccomp()
	if profile == nil || security.GetPrivileged() {
		return nil, nil
	}
	switch profile.GetProfileType() {
	case runtimeapi.SecurityProfile_Unconfined:
		return nil, nil
	case runtimeapi.SecurityProfile_RuntimeDefault:
		return defaultSeccomp(caps), nil
	case runtimeapi.SecurityProfile_Localhost:
		if localhost == nil {
			return nil, fmt.Errorf("%w: seccomp profile %q was not read", ErrInvalid, profile.GetLocalhostRef())
		}
		return localhost, nil
	default:
		return nil, fmt.Errorf("%w: seccomp profile %v", ErrNotSupported, profile.GetProfileType())
	}
}

// defaultSeccomp is the profile RuntimeDefault for a process with the
// capabilities caps: what ordinary programs call is allowed, what a capability
// guards is allowed to who has it and is EPERM to others, and what the profile
// does not know is ENOSYS, so that a newer C library falls back to what it does.
func defaultSeccomp(caps *specs.LinuxCapabilities) *specs.LinuxSeccomp {
	unknown := uint(eNOSYS)
	profile := &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: &unknown,
		// Each further architecture doubles the time in which the guest's
		// runtime compiles the filter (1, 7 and 19 ms on a machine of its own,
		// ten times that under emulation), so 32-bit programs need Unconfined.
		Architectures: []specs.Arch{specs.ArchX86_64},
		Syscalls:      []specs.LinuxSyscall{{Names: strings.Fields(ordinarySyscalls), Action: specs.ActAllow}},
	}
	var have []string
	if caps != nil {
		have = caps.Bounding
	}
	var allowed, denied []string
	for _, guarded := range guardedSyscalls {
		if slices.Contains(have, guarded.capability) {
			allowed = append(allowed, strings.Fields(guarded.names)...)
		} else {
			denied = append(denied, strings.Fields(guarded.names)...)
		}
	}
	// A call that several capabilities open is open with any of them.
	denied = slices.DeleteFunc(denied, func(name string) bool { return slices.Contains(allowed, name) })
	slices.Sort(allowed)
	slices.Sort(denied)
	profile.Syscalls = append(profile.Syscalls, argumentRules()...)
	if len(allowed) > 0 {
		profile.Syscalls = append(profile.Syscalls, specs.LinuxSyscall{Names: slices.Compact(allowed), Action: specs.ActAllow})
	}
	if !slices.Contains(have, "CAP_SYS_ADMIN") {
		// Its flags lie in memory, where a filter cannot look: ENOSYS has the
		// C library use clone instead.
		profile.Syscalls = append(profile.Syscalls,
			specs.LinuxSyscall{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &unknown},
			specs.LinuxSyscall{
				Names: []string{"clone"}, Action: specs.ActAllow,
				Args: []specs.LinuxSeccompArg{{Index: 0, Value: cloneNamespaces, ValueTwo: 0, Op: specs.OpMaskedEqual}},
			})
		denied = append(denied, "unshare", "setns")
	} else {
		profile.Syscalls = append(profile.Syscalls,
			specs.LinuxSyscall{Names: []string{"clone", "clone3", "setns", "unshare"}, Action: specs.ActAllow})
	}
	denied = append(denied, strings.Fields(forbiddenSyscalls)...)
	if len(denied) > 0 {
		no := uint(ePERM)
		profile.Syscalls = append(profile.Syscalls,
			specs.LinuxSyscall{Names: slices.Compact(denied), Action: specs.ActErrno, ErrnoRet: &no})
	}
	return profile
}

// argumentRules allow calls for some of their arguments.
func argumentRules() []specs.LinuxSyscall {
	rules := []specs.LinuxSyscall{{
		Names: []string{"socket"}, Action: specs.ActAllow,
		Args: []specs.LinuxSeccompArg{{Index: 0, Value: afVsock, Op: specs.OpNotEqual}},
	}}
	// Linux, Linux32, each also with 3.0 shown as 2.6, and the question.
	for _, persona := range []uint64{0x0, 0x8, 0x20000, 0x20008, 0xffffffff} {
		rules = append(rules, specs.LinuxSyscall{
			Names: []string{"personality"}, Action: specs.ActAllow,
			Args: []specs.LinuxSeccompArg{{Index: 0, Value: persona, Op: specs.OpEqualTo}},
		})
	}
	return rules
}
