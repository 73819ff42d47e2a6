package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// start starts a command in the namespace.
func (r record) start(cmd *exec.Cmd) error {
	if r.OwnUser {
		return r.startEntering(cmd)
	}
	at, err := r.place()
	if err != nil {
		return err
	}
	defer at.Close()
	// A child is cloned from the thread that forks, and inherits its namespace and the others that the caller has
	// entered.
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the pods' network namespace: %w", err)
	}
	defer home.Close()
	if err := unix.Setns(int(at.Net.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the pods' network namespace: %w", err)
	}
	err = cmd.Start()
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	} // else the thread ends with this goroutine, and runs no other
	return err
}

// place returns the namespace, while its holder lives.
func (r record) place() (p Place, err error) {
	at := "/proc/" + strconv.Itoa(r.Holder.PID) + "/ns/"
	if p.Net, err = os.Open(at + "net"); err == nil && r.OwnUser {
		p.User, err = os.Open(at + "user")
	}
	if err == nil && !r.Holder.Alive() {
		err = errors.New("its holder is gone")
	}
	if err != nil {
		return Place{}, errors.Join(fmt.Errorf("enter the pods' network namespace: %w", err), p.Close())
	}
	return p, nil
}

// startEntering uses nsenter: a process with threads, as every Go program is, cannot join a user namespace.
func (r record) startEntering(cmd *exec.Cmd) error {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("enter the pods' network namespace: %w", err)
	}
	if cmd.Err != nil {
		return cmd.Err
	}
	target := strconv.Itoa(r.Holder.PID)
	cmd.Args = append([]string{nsenter, "--target", target, "--user", "--net", "--preserve-credentials", "--", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = nsenter
	return cmd.Start()
}
