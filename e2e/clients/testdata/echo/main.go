// Echo is a server and client of TCP and UDP for containers. Names are resolved by /etc/resolv.conf.
//
//	echo serve tcp:80 udp:81 …       answers each line or datagram with the address of its sender and the text
//	echo serve dns:NAME.=10.0.0.1 …  is a name server that knows one name
//	echo dial udp 10.0.0.1:81 hi     sends a text, and prints the answer
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 2 && os.Args[1] == "serve":
		err = serve(os.Args[2:])
	case len(os.Args) == 5 && os.Args[1] == "dial":
		err = dial(os.Args[2], os.Args[3], os.Args[4])
	default:
		err = fmt.Errorf("usage: %s serve NETWORK:PORT… or %[1]s dial NETWORK ADDRESS TEXT", os.Args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(listeners []string) error {
	failed := make(chan error)
	for _, l := range listeners {
		network, port, _ := strings.Cut(l, ":")
		respond := func(from net.Addr, request []byte) ([]byte, error) { return []byte(answer(from, string(request))), nil }
		if network == "dns" {
			name, address, _ := strings.Cut(port, "=")
			respond = func(_ net.Addr, query []byte) ([]byte, error) { return resolve(name, address, query) }
			network, port = "udp", "53"
		}
		if network == "udp" {
			conn, err := net.ListenPacket(network, ":"+port)
			if err != nil {
				return err
			}
			go func() { failed <- datagrams(conn, respond) }()
			continue
		}
		listener, err := net.Listen(network, ":"+port)
		if err != nil {
			return err
		}
		go func() { failed <- connections(listener) }()
	}
	fmt.Println("serving")
	return <-failed
}

func answer(from net.Addr, text string) string {
	host, _, _ := net.SplitHostPort(from.String())
	return host + " " + strings.TrimSpace(text) + "\n"
}

func datagrams(conn net.PacketConn, respond func(from net.Addr, request []byte) ([]byte, error)) error {
	for b := make([]byte, 1500); ; {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return err
		}
		response, err := respond(from, b[:n])
		if err != nil {
			continue // not a query
		}
		if _, err := conn.WriteTo(response, from); err != nil {
			return err
		}
	}
}

// resolve answers a query for the address of a name. Other names do not exist.
func resolve(name, address string, query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("a query with %d questions: %w", len(m.Questions), err)
	}
	q := m.Questions[0]
	m.Response, m.RCode, m.Additionals = true, dnsmessage.RCodeSuccess, nil
	switch {
	case q.Name.String() != name:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()},
		}}
	}
	return m.Pack()
}

func connections(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if _, err := io.WriteString(conn, answer(conn.RemoteAddr(), lines.Text())); err != nil {
					return
				}
			}
		}()
	}
}

// patience bounds a dial and its answer. TCP repeats lost packets itself, and VMs of a busy host answer late.
func patience(network string) time.Duration {
	if network == "udp" {
		return 2 * time.Second
	}
	return 10 * time.Second
}

func dial(network, address, text string) error {
	conn, err := net.DialTimeout(network, address, patience(network))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience(network))); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, text+"\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	_, err = io.WriteString(os.Stdout, line)
	return err
}
