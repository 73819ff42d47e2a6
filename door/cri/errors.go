package cri

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// coded gives an error the code that a client of the CRI acts by.
func coded(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(failure.Code(err), failure.Message(err))
}

func unaryErrors(ctx context.Context, r any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	res, err := h(ctx, r)
	return res, coded(err)
}

func streamErrors(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	return coded(h(srv, s))
}
