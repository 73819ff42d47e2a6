package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Through is the Dialer of a pod whose ports dial connects to, by another way
// than its address, which is ip or empty. An error of dial that matches
// syscall.ECONNREFUSED says that nothing listens, one with the code Unavailable,
// FailedPrecondition or NotFound nothing about the pod.
func Through(dial Dialer, ip string) Dialer {
	return func(ctx context.Context, port int) (net.Conn, error) {
		conn, err := dial(ctx, port)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			// As it would be told if the pod's address were the host's to reach.
			return nil, &net.OpError{
				Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: port},
				Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
			}
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.FailedPrecondition, codes.NotFound:
			return nil, fmt.Errorf("%w: %w", ErrNotAsked, err)
		}
		return nil, err
	}
}
