package surrogate

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// receive reads a message into buf, and returns the file that came with it, or nil.
func receive(control *os.File, buf []byte) (n int, file *os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(int(control.Fd()), buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || oobn == 0 {
		return n, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return n, nil, errors.Join(err, ErrOrder)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return n, nil, errors.Join(err, ErrOrder)
	}
	return n, os.NewFile(uintptr(fds[0]), "file"), nil
}

// hold stands for a pod's VM, as a pause container would. It returns when it is asked to end, and when the VM has ended.
func (s *process) hold(signals <-chan os.Signal) int {
	ended := make(chan struct{})
	fds := []unix.PollFd{{Fd: int32(s.vm.Fd()), Events: unix.POLLIN}}
	go func() {
		defer close(ended)
		for {
			if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	for {
		select {
		case <-ended:
			return lostCode
		case sig := <-signals:
			if sig == unix.SIGTERM || sig == unix.SIGINT {
				return 0
			}
		}
	}
}
