package oci

import (
	"errors"
	"testing"
)

// Both separators work, and neither lets a name leave its directory.
func TestCheckSysctls(t *testing.T) {
	for name, allowed := range map[string]bool{
		"vm.max_map_count": true, "vm/overcommit_memory": true, "fs.file-max": true, "fs.inotify.max_user_watches": true, "kernel.pid_max": true,
		"kernel.shmmax": true, "net.core.somaxconn": true, "net/ipv4/conf/eth0.1/forwarding": true, "fs.mqueue.msg_max": true, "kernel.sem": true,
		"kernel.core_pattern": false, "kernel.modprobe": false, "kernel.modules_disabled": false,
		"kernel.panic": false, "fs.suid_dumpable": false,
		"fs.binfmt_misc.register": false, "dev.cdrom.debug": false, "vm/../kernel/core_pattern": false, "net/../kernel/core_pattern": false,
		"kernel/yama/ptrace_scope": false, "": false,
	} {
		err := CheckSysctls(map[string]string{name: "1"})
		if (err == nil) != allowed || err != nil && !errors.Is(err, ErrNotSupported) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, value := range []string{"1\n2", "1\x00"} {
		if err := CheckSysctls(map[string]string{"vm.max_map_count": value}); !errors.Is(err, ErrNotSupported) {
			t.Errorf("value %q: %v", value, err)
		}
	}
	if err := CheckSysctls(nil); err != nil {
		t.Errorf("none: %v", err)
	}
}
