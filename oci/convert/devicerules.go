package convert

import (
	"fmt"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// hostRules returns the rules of the specification.
func (c *conversion) hostRules() []specs.LinuxDeviceCgroup {
	if c.host.Resources == nil {
		return nil
	}
	return c.host.Resources.Devices
}

// covers reports whether a rule is for a device. An empty kind stands for all devices.
func covers(rule specs.LinuxDeviceCgroup, kind string, major, minor int64) bool {
	if rule.Type == "" || rule.Type == "a" {
		return true // the kernel ignores the numbers
	}
	is := func(of *int64, n int64) bool { return of == nil || *of < 0 || *of == n }
	return rule.Type == kind && is(rule.Major, major) && is(rule.Minor, minor)
}

// privileged reports whether the rules allow all devices.
func (c *conversion) privileged() bool {
	all := false
	for _, rule := range c.hostRules() {
		if covers(rule, "", -1, -1) {
			all = rule.Allow && (rule.Access == "" || len(strings.Trim("rwm", rule.Access)) == 0)
		}
	}
	return all
}

// accessTo returns the access to a device that the rules give: some of "rwm".
func (c *conversion) accessTo(kind string, major, minor int64) (access string) {
	for _, letter := range []string{"r", "w", "m"} {
		allowed := false
		for _, rule := range c.hostRules() {
			if covers(rule, kind, major, minor) && (rule.Access == "" || strings.Contains(rule.Access, letter)) {
				allowed = rule.Allow
			}
		}
		if allowed {
			access += letter
		}
	}
	return access
}

// rules copies the rules for devices of the guest. Rules for other numbers would give access to another device there.
func (c *conversion) rules() {
	if c.linux.Resources == nil {
		c.linux.Resources = &specs.LinuxResources{}
	}
	added := c.linux.Resources.Devices[len(c.hostRules()):] // by mounts
	kept := []specs.LinuxDeviceCgroup{}
	for i, rule := range c.linux.Resources.Devices[:len(c.hostRules())] {
		field := fmt.Sprintf("linux.resources.devices[%d]", i)
		switch {
		case rule.Type != "" && rule.Type != "a" && rule.Type != "b" && rule.Type != "c":
			c.fail(invalid(field+".type", "%.32q", rule.Type))
		case strings.Trim(rule.Access, "rwm") != "":
			c.fail(invalid(field+".access", "%.32q", rule.Access))
		case rule.Allow && !c.inGuest(rule):
			if !c.isDisk(rule) {
				c.ignore(field, fmt.Sprintf("a VM has no device %s %d", rule.Type, *rule.Major))
			}
		default:
			kept = append(kept, rule)
		}
	}
	if len(kept) == 0 {
		kept = append(kept, specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"})
	}
	c.linux.Resources.Devices = append(kept, added...)
}

// inGuest reports whether a rule means the same in the guest.
func (c *conversion) inGuest(rule specs.LinuxDeviceCgroup) bool {
	if rule.Type == "" || rule.Type == "a" || rule.Major == nil || *rule.Major < 0 {
		return true
	}
	if rule.Type != "c" {
		return false
	}
	if *rule.Major == 5 || *rule.Major == 136 {
		return true // terminals
	}
	if rule.Minor == nil || *rule.Minor < 0 {
		return *rule.Major == 1 // the memory devices, which the guest's kernel guards by capabilities
	}
	_, ok := c.node(*rule.Major, *rule.Minor)
	return ok
}

// isDisk reports whether a rule is for a disk of the plan, which has its own rule in the guest.
func (c *conversion) isDisk(rule specs.LinuxDeviceCgroup) bool {
	for _, d := range c.plan.Disks {
		if covers(rule, "b", int64(d.Major), int64(d.Minor)) {
			return true
		}
	}
	return false
}

// allow adds a rule for a device of the guest.
func (c *conversion) allow(kind string, major, minor int64, access string) {
	if c.linux.Resources == nil {
		c.linux.Resources = &specs.LinuxResources{}
	}
	rule := specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: access}
	c.linux.Resources.Devices = append(c.linux.Resources.Devices, rule)
}
