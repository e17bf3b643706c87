// Package v20170312 stands for the module of that name, which cannot be had from the module proxy: flanneld needs it to
// be built, and not to run with any backend but Tencent's.
package v20170312

import "errors"

var errAbsent = errors.New("flanneld was built without Tencent's cloud")

type Client struct{}

func NewClientWithSecretId(_, _, _ string) (*Client, error) { return &Client{}, nil }

type Filter struct {
	Name   *string
	Values []*string
}

type Route struct {
	DestinationCidrBlock, GatewayType, GatewayId, RouteType *string
	RouteId                                                 *uint64
	Enabled                                                 *bool
}

type RouteTable struct {
	RouteTableId *string
	RouteSet     []*Route
}

type Request struct {
	Filters      []*Filter
	RouteTableId *string
	Routes       []*Route
}

func NewDescribeRouteTablesRequest() *Request { return &Request{} }
func NewDeleteRoutesRequest() *Request        { return &Request{} }
func NewCreateRoutesRequest() *Request        { return &Request{} }

type Response struct {
	Response struct{ RouteTableSet []*RouteTable }
}

func (*Client) DescribeRouteTables(*Request) (*Response, error) { return nil, errAbsent }
func (*Client) DeleteRoutes(*Request) (*Response, error)        { return nil, errAbsent }
func (*Client) CreateRoutes(*Request) (*Response, error)        { return nil, errAbsent }
