package cli

import "testing"

// testDebug runs a shell in an ephemeral container among the processes of another container. It detaches, attaches
// again, and gets the shell's exit code.
func testDebug(t *testing.T, u *user) {
	u.must(manifest(busybox, "[sleep, '4242']", ""), "run", "-d", "--quiet", "-")
	defer u.must("", "rm", "-f", "bad")
	p := newTerminal(t, 40, 100)
	before := p.Modes()

	shell := p.start(u, "debug", "bad", "-it", "--target", "c", "-c", "d", "--", "sh", "-c", "BEGAN=$(stty size) exec sh")
	p.Expect("container d: press Enter")
	p.Type("echo $BEGAN; tr '\\0' ' ' </proc/1/cmdline; echo; echo $TERM\r")
	p.Expect(`40 100\r\nsleep 4242 \r\nxterm\r\n`)
	p.Type("\x10\x11")
	p.Expect("detached")
	p.CheckExit(shell, 0, before)

	shell = p.start(u, "attach", "-it", "-c", "d", "bad")
	p.Type("exit 7\r")
	p.CheckExit(shell, 7, before)
}
