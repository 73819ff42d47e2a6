package convert

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/oci"
)

// security checks the settings that restrict the container's system calls and paths.
func (c *conversion) security() error {
	if p := c.linux.Personality; p != nil && p.Domain != specs.PerLinux && p.Domain != specs.PerLinux32 {
		return invalid("linux.personality.domain", "%.32q", p.Domain)
	}
	for field, paths := range map[string][]string{"linux.maskedPaths": c.linux.MaskedPaths, "linux.readonlyPaths": c.linux.ReadonlyPaths} {
		if slices.Contains(paths, "") {
			return invalid(field, "an empty path")
		}
	}
	profile := c.linux.Seccomp
	if profile == nil {
		return nil
	}
	if err := oci.CheckSeccomp(profile); err != nil {
		return fmt.Errorf("linux.seccomp: %w", err)
	}
	var kept []specs.LinuxSeccompFlag
	for _, flag := range profile.Flags {
		switch flag {
		case "SECCOMP_FILTER_FLAG_TSYNC", specs.LinuxSeccompFlagLog, specs.LinuxSeccompFlagSpecAllow:
			kept = append(kept, flag)
		case specs.LinuxSeccompFlagWaitKillableRecv:
			c.ignore("linux.seccomp.flags", string(flag)+" is for listeners only")
		default:
			return invalid("linux.seccomp.flags", "%.64q", flag)
		}
	}
	profile.Flags = kept
	return nil
}
