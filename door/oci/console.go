package oci

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/fdpass"
)

// consoleWait bounds the hand-over of a terminal.
const consoleWait = 10 * time.Second

// openConsole makes a terminal, sends its master to the client's socket and returns its slave, in raw mode: the
// terminal's rules apply in the guest.
func openConsole(socket string, size *specs.Box) (*os.File, error) {
	if socket == "" {
		return nil, errors.New("cannot allocate tty if runc will detach without setting console socket")
	}
	master, slave, err := makePTY()
	if err != nil {
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	defer master.Close()
	if size != nil {
		w := unix.Winsize{Row: uint16(size.Height), Col: uint16(size.Width)}
		if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &w); err != nil {
			slave.Close()
			return nil, fmt.Errorf("set the terminal's size: %w", err)
		}
	}
	if err := sendMaster(socket, master); err != nil {
		slave.Close()
		return nil, fmt.Errorf("send the terminal to %s: %w", socket, err)
	}
	return slave, nil
}

func sendMaster(socket string, master *os.File) error {
	ctx, cancel := context.WithTimeout(context.Background(), consoleWait)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	return fdpass.Send(conn.(*net.UnixConn), []byte(master.Name()), master)
}

// makePTY returns a terminal with a raw slave.
func makePTY() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	name := "/dev/pts/" + strconv.Itoa(number)
	end, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := makeRaw(end); err != nil {
		unix.Close(end)
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/ptmx"), os.NewFile(uintptr(end), name), nil
}

// makeRaw switches off all work of a terminal.
func makeRaw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}
