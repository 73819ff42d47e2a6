package qemu

import (
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// TestArguments checks the arguments that separate guests, and those that QEMU from 7.2 on needs to boot one.
func TestArguments(t *testing.T) {
	off := strings.Fields("smm=off vmport=off hpet=off sata=off smbus=off usb=off i8042=off dump-guest-core=off mem-merge=off")
	const hotplug = "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"
	for name, tc := range map[string]struct {
		config  hypervisor.VMConfig
		cpu     string
		hotplug bool
	}{
		"emulated": {
			hypervisor.VMConfig{Accel: hypervisor.TCG, Network: hypervisor.NetworkUser}, "max,svm=off,erms=off,fsrm=off,level-func7=0", false,
		},
		"KVM":        {hypervisor.VMConfig{Accel: hypervisor.KVM, Network: hypervisor.NetworkNone}, "host,vmx=off,svm=off", false},
		"with a tap": {hypervisor.VMConfig{Accel: hypervisor.KVM, Network: hypervisor.NetworkTap}, "host,vmx=off,svm=off", true},
	} {
		for _, mode := range []startMode{boot, clone} {
			args := arguments(tc.config, hypervisor.Options{Name: "x"}, fds{}, mode)
			value := func(option string) string { return args[slices.Index(args, option)+1] }
			if got := value("-cpu"); got != tc.cpu {
				t.Errorf("%s: -cpu %s, want %s", name, got, tc.cpu)
			}
			for _, part := range off {
				if !slices.Contains(strings.Split(value("-machine"), ","), part) {
					t.Errorf("%s: -machine %s lacks %s", name, value("-machine"), part)
				}
			}
			if slices.Contains(args, hotplug) == tc.hotplug {
				t.Errorf("%s: %v", name, args)
			}
		}
	}
}
