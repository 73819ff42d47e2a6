package hypervisorfake

import (
	"errors"
	"net"
	"os"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// accept serves one connection of the channel at a time.
func (m *machine) accept(serve func(*Guest, net.Conn), g *Guest) {
	for {
		conn, err := m.l.Accept()
		if err != nil {
			return
		}
		stop := make(chan struct{})
		m.wg.Go(func() {
			select {
			case <-m.done:
			case <-stop:
			}
			conn.Close()
		})
		if serve != nil {
			serve(g, conn)
		} else {
			<-m.done
		}
		close(stop)
	}
}

// reap waits for the process, whoever ends it.
func (m *machine) reap() {
	err := m.cmd.Wait()
	m.mu.Lock()
	if m.exit == nil && err != nil {
		m.exit = err
	}
	for slot, disk := range m.disks {
		disk.Close()
		delete(m.disks, slot)
	}
	m.mu.Unlock()
	m.l.Close()
	close(m.done)
	m.wg.Wait()
}

// errOff stands for a guest that shut itself down.
var errOff = errors.New("off")

// end ends the process; the first cause counts.
func (m *machine) end(cause error) {
	m.mu.Lock()
	if m.exit == nil {
		m.exit = cause
	}
	m.mu.Unlock()
	m.pipe.Close()
	m.cmd.Process.Kill()
}

func (m *machine) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// PowerOff ends the machine as a guest does that shuts itself down.
func (g *Guest) PowerOff() { g.m.end(errOff) }

// Crash ends the machine as a guest does whose kernel dies with these words.
func (g *Guest) Crash(console string) {
	g.m.mu.Lock()
	if g.m.console != nil {
		_, _ = g.m.console.WriteString(console)
	}
	g.m.mu.Unlock()
	g.m.end(errors.New("the guest's kernel died or rebooted"))
}

// Memory is what the guest has, in MiB.
func (g *Guest) Memory() int {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	return g.m.memory
}

// Disk is the disk in a slot, nil for an empty one. It is the machine's.
func (g *Guest) Disk(slot int) *os.File {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	return g.m.disks[slot]
}

// tail is the end of the console.
func (m *machine) tail() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.console == nil {
		return ""
	}
	info, err := m.console.Stat()
	if err != nil {
		return ""
	}
	buf := make([]byte, min(info.Size(), 2<<10))
	n, _ := m.console.ReadAt(buf, info.Size()-int64(len(buf)))
	return hypervisor.Printable(string(buf[:n]))
}
