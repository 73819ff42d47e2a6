package command

import "os"

// usualPath is the path of programs for a command without one.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// completePath sets the path of programs if the caller has not set one. Podman deletes containers without it. The engine that
// the command may start needs QEMU.
func completePath() error {
	if os.Getenv("PATH") != "" {
		return nil
	}
	return os.Setenv("PATH", usualPath)
}
